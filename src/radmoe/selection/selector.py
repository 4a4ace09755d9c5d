"""Routing Agreement Decoding decides which of N rollouts to return. It reads routing and never an answer.

RAD takes the rollout in the densest K-NN neighbourhood of route space (Eq. 5). RAD+DC also weighs each rollout's own
confidence. What is read and how it is compared follows from the kind of answer: the agentic form compares sets of fired
experts over every action boundary.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from radmoe.errors import InputError
from radmoe.selection.confidence import WINDOW, likelihood, rollout_confidence
from radmoe.selection.kernels import binary_jaccard, climb, knn, knn_density, levels, weighted_jaccard
from radmoe.selection.kinds import infer_kind, needs_marker
from radmoe.selection.layers import Layers
from radmoe.selection.overlap import answer_texts, text_similarity
from radmoe.selection.presets import preset_named
from radmoe.selection.readout import Anchors, Reading, Readout, locate_all, read
from radmoe.types import Kind, RolloutGroup, Selection, Trace

KERNELS = ("weighted", "binary")
FUSIONS = ("conf50", "ranksum")
COMPARES = ("routing", "text", "routing+text")
CONFIDENCES = ("cbw", "tail", "likelihood")

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Setting:
    """How rollouts are read and compared. `kind` is None where no marker of a kind is read."""

    kind: Kind | None
    readout: str
    k: int
    kernel: str

    def __post_init__(self) -> None:
        if self.kernel not in KERNELS:
            raise InputError(f"unknown kernel {self.kernel!r}: use one of {', '.join(KERNELS)}")
        if isinstance(self.k, bool) or not isinstance(self.k, int | np.integer) or self.k < 1:
            raise InputError(f"k must be a whole number of neighbours from 1 up, got {self.k!r}")
        Readout.parse(self.readout)

    @property
    def strict(self) -> str | None:
        """The marker-only readout of the same anchor; None where there is none."""
        readout = Readout.parse(self.readout)
        if readout.width in ("marker", "union") or readout.family not in ("delimiter", "boundary", "trajectory"):
            return None
        return str(Readout(readout.family, "marker", readout.name, readout.occurrence))


@dataclass(frozen=True)
class Rule:
    """How one rollout is chosen: what is read and compared, and how the model's own confidence counts.

    `fusion` says how confidence is joined with density (None: plain RAD), `confidence` which scalar of a rollout that is. `compare` is one of COMPARES. `preset` is the name
    of the preset that the rule began with.
    """

    setting: Setting
    fusion: str | None = None
    confidence: str = "cbw"
    compare: str = "routing"
    preset: str = "paper"

    def __post_init__(self) -> None:
        _check(self.fusion, self.confidence)
        if self.compare not in COMPARES:
            raise InputError(f"unknown comparison {self.compare!r}: use one of {', '.join(COMPARES)}")


def setting_for(
    kind: Kind | None, *, readout: str | Readout | None = None, k: int | None = None, kernel: str | None = None
) -> Setting:
    """The paper's setting for a kind of answer; whatever the caller gives replaces its default."""
    return rule_for(kind, 0, readout=readout, k=k, kernel=kernel).setting


def rule_for(
    kind: Kind | None,
    rollouts: int,
    *,
    preset: str | None = None,
    readout: str | Readout | None = None,
    k: int | None = None,
    kernel: str | None = None,
    fusion: str | None = None,
    confidence: str | None = None,
    compare: str | None = None,
) -> Rule:
    """The rule that a preset (the paper's, unless given) has for groups of so many rollouts of a kind.

    Whatever else the caller gives replaces that part of it; fusion "none" is plain RAD.
    """
    chosen = preset_named(preset or "paper")
    recipe = chosen.recipe(kind)
    fusion = recipe.fusion if fusion is None else fusion
    setting = Setting(
        kind,
        recipe.readout if readout is None else str(readout),
        recipe.neighbours(rollouts) if k is None else k,
        recipe.kernel if kernel is None else kernel,
    )
    return Rule(
        setting,
        None if fusion == "none" else fusion,
        recipe.confidence if confidence is None else confidence,
        recipe.compare if compare is None else compare,
        chosen.name,
    )


def select(
    group: RolloutGroup,
    *,
    preset: str | None = None,
    kind: Kind | None = None,
    readout: str | Readout | None = None,
    k: int | None = None,
    kernel: str | None = None,
    fusion: str | None = None,
    confidence: str | None = None,
    compare: str | None = None,
    confidence_window: int = WINDOW,
    layers: Layers = None,
    budget: int | None = None,
    seed: int = 0,
) -> Selection:
    """Pick one rollout, or abstain when fewer than two are located.

    `preset` names a documented combination (`radmoe.selection.presets`): "paper" (the default), "paper+dc", "strict", "best" or
    "best+text"; whatever else is given replaces its part of it. `kind` is the group's own unless given; where the group has
    none either, it is inferred from the markers in the rollouts. The kind decides what is not given. In the paper's preset that
    is delimiter@16, k=10 and the weighted kernel for math, choice and code; boundary@16 with the same k and kernel for text;
    every boundary as a set, k=4 and the binary kernel for agents.

    fusion "none" is RAD. "conf50" keeps the more confident half and takes the densest rollout in it; ties go to the
    more confident. "ranksum" adds the ranks of density and confidence. `confidence` names the scalar: "cbw"
    (bottom window) or "tail" of DeepConf, with windows of `confidence_window` tokens, or "likelihood". Without fusion, ties go
    to the lowest index. Densities that float32 similarities cannot tell apart are ties.

    compare="routing" reads no answer. "text" compares what the answers say instead, and "routing+text" adds the ranks of both
    densities; a rollout whose answer never closes is then not located.

    Cost: one window per rollout from disk, then O(n^2 s) for n located rollouts of support s.
    """
    given: dict[str, Any] = {"preset": preset, "readout": readout, "k": k, "kernel": kernel}
    given |= {"fusion": fusion, "confidence": confidence, "compare": compare}
    kind = kind or group.kind
    rule = rule_for(kind, len(group), **given)
    if kind is None and (rule.compare != "routing" or needs_marker(None if readout is None else str(readout))):
        kind = infer_kind([group], f"problem {group.problem_id!r}")
        if kind is None:  # too few rollouts have a marker to tell the kind
            nothing = Reading(_NOTHING, np.zeros(len(group), bool), (None,) * len(group))
            return made_by(rule, _abstain(group, nothing, rule.setting))
        rule = rule_for(kind, len(group), **given)
    S, reading, text = compared(group, rule, layers=layers, budget=budget, seed=seed)
    members = np.flatnonzero(reading.located)
    confidences = None
    if rule.fusion is not None and len(members) >= 2:
        needed_by = f"preset {rule.preset} with fusion {rule.fusion} and confidence {rule.confidence}"
        confidences = np.array(
            [confidence_of(group, int(i), rule.confidence, confidence_window, needed_by) for i in members]
        )
    return made_by(rule, choose(group, S, reading, rule.setting, fusion=rule.fusion, confidence=confidences, text=text))


def choose(
    group: RolloutGroup,
    S: NDArray[np.float32],
    reading: Reading,
    setting: Setting,
    *,
    fusion: str | None = None,
    confidence: Floats | None = None,
    text: NDArray[np.float32] | None = None,
) -> Selection:
    """Pick as `select` does, from a consensus matrix S [n, n] at hand, so that several rules can share one.

    `confidence` has one number for each located rollout [n]. It is needed unless `fusion` is None. `text` is a second
    consensus matrix [n, n], whose density counts as much as that of S: their ranks are added.
    """
    _check(fusion)
    members = np.flatnonzero(reading.located)
    if len(members) < 2:
        return _abstain(group, reading, setting)
    if fusion is None:
        confidence = np.zeros(len(members))
    elif confidence is None or len(confidence) != len(members):
        raise InputError(f"fusion {fusion!r} needs the confidence of each of the {len(members)} located rollouts")
    scored = np.arange(len(members))
    if fusion == "conf50":
        scored = np.sort(np.lexsort((members, -confidence))[: (len(members) + 1) // 2])
    among = S[np.ix_(scored, scored)]
    density = knn_density(among, setting.k)
    score = density
    if fusion == "ranksum" or text is not None:
        score = ranks(levels(density, setting.k))
    if text is not None:
        score = score + ranks(levels(knn_density(text[np.ix_(scored, scored)], setting.k), setting.k))
    if fusion == "ranksum":
        score = score + ranks(confidence)
    return _selection(group, reading, setting, members[scored], among, density, score, confidence[scored])


def medoid(group: RolloutGroup, **options: Any) -> Selection:
    """The rollout most similar to all others, a control: its density counts every other rollout as a neighbour."""
    return select(group, k=max(1, len(group)), **options)


def select_many(groups: Iterable[RolloutGroup], *, threads: int = 1, **options: Any) -> Iterator[Selection]:
    """`select` over many problems, in order; no result depends on the number of threads."""
    if threads < 1:
        raise InputError(f"threads must be at least 1, got {threads}")
    choose_one = partial(select, **options)
    if threads == 1:
        yield from map(choose_one, groups)
        return
    source = iter(groups)
    with ThreadPoolExecutor(threads) as workers:
        while batch := list(islice(source, 4 * threads)):  # limits how many groups are in memory at once
            yield from workers.map(choose_one, batch)


def similarity(
    group: RolloutGroup,
    setting: Setting,
    *,
    layers: Layers = None,
    budget: int | None = None,
    seed: int = 0,
    anchors: Anchors | None = None,
) -> tuple[NDArray[np.float32], Reading]:
    """The consensus matrix S [n, n] of the located rollouts, and what was read. `anchors` are passed on to `read`."""
    binary = setting.kernel == "binary"
    reading = read(
        group, setting.readout, setting.kind, layers=layers, budget=budget, seed=seed, binary=binary, anchors=anchors
    )
    return (binary_jaccard if binary else weighted_jaccard)(reading.Z), reading


def compared(
    group: RolloutGroup, rule: Rule, *, layers: Layers = None, budget: int | None = None, seed: int = 0
) -> tuple[NDArray[np.float32], Reading, NDArray[np.float32] | None]:
    """What a rule compares: a consensus matrix [n, n], what was read, and that of the texts where both count.

    Where text counts, a rollout is located only if its answer closes.
    """
    setting = rule.setting
    if rule.compare == "routing":
        return *similarity(group, setting, layers=layers, budget=budget, seed=seed), None
    texts = answer_texts(group, setting.kind, budget=budget)
    if rule.compare == "routing+text":
        return with_text(*similarity(group, setting, layers=layers, budget=budget, seed=seed), texts)
    anchors = tuple(locate_all(group, setting.readout, setting.kind, budget=budget, seed=seed))
    located = np.array([anchor is not None for anchor in anchors], bool)
    n = int(located.sum())
    reading = Reading(np.zeros((n, 0), np.float32), located, anchors)
    _, reading, text = with_text(np.zeros((n, n), np.float32), reading, texts)
    return text, reading, None


def with_text(
    S: NDArray[np.float32], reading: Reading, texts: Sequence[str | None]
) -> tuple[NDArray[np.float32], Reading, NDArray[np.float32]]:
    """A consensus matrix and what was read, of the rollouts alone whose answer has a text, and the matrix of these texts."""
    closed = np.array([text is not None for text in texts], bool)
    keep, both = closed[reading.located], reading.located & closed
    anchors = tuple(anchor if here else None for anchor, here in zip(reading.anchors, both, strict=True))
    told = [text for text, here in zip(texts, both, strict=True) if text is not None and here]
    return S[np.ix_(keep, keep)], Reading(reading.Z[keep], both, anchors), text_similarity(told)


def ranks(values: NDArray[Any]) -> Floats:
    """Ascending ranks from 1. Equal values share the mean of their ranks."""
    ordered = np.sort(values)
    return (np.searchsorted(ordered, values, "left") + np.searchsorted(ordered, values, "right") + 1) / 2.0


_NOTHING = np.zeros((0, 0), np.float32)


def made_by(rule: Rule, selection: Selection) -> Selection:
    """A selection that says by which rule it was made."""
    confidence = None if rule.fusion is None else rule.confidence
    return replace(selection, preset=rule.preset, fusion=rule.fusion, confidence=confidence, compare=rule.compare)


def _check(fusion: str | None, confidence: str = "cbw") -> None:
    if fusion is not None and fusion not in FUSIONS:
        raise InputError(f"unknown fusion {fusion!r}: use one of {', '.join(FUSIONS)}, or none for plain RAD")
    if confidence not in CONFIDENCES:
        raise InputError(f"unknown confidence {confidence!r}: use one of {', '.join(CONFIDENCES)}")


def _selection(
    group: RolloutGroup,
    reading: Reading,
    setting: Setting,
    runs: Ints,
    S: NDArray[np.float32],
    density: Floats,
    score: Floats,
    confidence: Floats,
) -> Selection:
    """Put the pick and its reasons together. The arrays have one entry for each of the scored rollouts `runs`."""
    k = setting.k
    best_first = np.lexsort((runs, -confidence, -levels(score, k)))
    rank = np.empty(len(runs), np.int64)
    rank[best_first] = np.arange(len(runs))
    root = climb(S, k, rank)
    pick = int(best_first[0])
    others = score[root != pick]
    near = knn(S, k)
    total = len(reading.located)
    return Selection(
        index=int(runs[pick]),
        rollout_index=_number(group, int(runs[pick])),
        density=_spread(density, runs, total, np.nan),
        located=reading.located,
        anchors=reading.anchors,
        k=near.shape[1],
        basin=tuple(int(i) for i in runs[root == pick]),
        margin=float(score[pick] - others.max()) if len(others) else float("nan"),
        neighbours=tuple(int(i) for i in runs[near[pick]]),
        score=_spread(score, runs, total, np.nan),
        roots=_spread(runs[root], runs, total, -1),
        kind=setting.kind,
        readout=setting.readout,
    )


def confidence_of(
    group: RolloutGroup, i: int, confidence: str, confidence_window: int, needed_by: str = "RAD+DC"
) -> float:
    """The confidence of one rollout. Raises an InputError that names the column it lacks, and what it is `needed_by`."""
    rollout: Trace = group.rollouts[i]
    column = rollout.sampled_logprobs if confidence == "likelihood" else rollout.topk_logprobs
    if column is None:
        likely = confidence == "likelihood"
        what = (
            "logprobs of its tokens (the column sampled_logprobs)"
            if likely
            else "top-k logprobs (the column topk_logprobs)"
        )
        raise InputError(
            f"rollout {i} of problem {group.problem_id!r} has no {what}, which {needed_by} needs: capture them, or select with "
            "fusion none"
        )
    if confidence == "likelihood":
        return likelihood(column)
    return rollout_confidence(column, "tail" if confidence == "tail" else "bottom-window", window=confidence_window)


def _number(group: RolloutGroup, i: int) -> int:
    """The number that a rollout of this group has in the pool it comes from."""
    assert group.rollout_indices is not None
    return group.rollout_indices[i]


def _spread(values: NDArray[Any], runs: Ints, total: int, blank: float) -> NDArray[Any]:
    out = np.full(total, blank, values.dtype)
    out[runs] = values
    return out


def _abstain(group: RolloutGroup, reading: Reading, setting: Setting) -> Selection:
    blank = np.full(len(group), np.nan)
    return Selection(
        index=None,
        rollout_index=None,
        density=blank,
        located=reading.located,
        anchors=reading.anchors,
        k=0,
        basin=(),
        margin=float("nan"),
        score=blank,
        roots=np.full(len(group), -1, np.int64),
        kind=setting.kind,
        readout=setting.readout,
    )

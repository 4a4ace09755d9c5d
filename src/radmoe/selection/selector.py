"""Routing Agreement Decoding decides which of N rollouts to return. It reads routing and never an answer.

RAD takes the rollout in the densest K-NN neighbourhood of route space (Eq. 5). RAD+DC also weighs each rollout's own
confidence. What is read and how it is compared follows from the kind of answer: the agentic form compares sets of fired
experts over every action boundary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from radmoe.errors import InputError
from radmoe.selection.confidence import likelihood, rollout_confidence
from radmoe.selection.kernels import binary_jaccard, climb, knn, knn_density, levels, ranks, weighted_jaccard
from radmoe.selection.kinds import infer_kind, needs_marker
from radmoe.selection.layers import Layers
from radmoe.selection.overlap import answer_texts, text_similarity
from radmoe.selection.readout import Anchors, Reading, Readout, locate_all, read
from radmoe.selection.rule import Rule, Setting
from radmoe.types import Confidence, Fusion, Kernel, Kind, PresetName, RolloutGroup, Selection, Trace

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Similar = Callable[[RolloutGroup, Setting], tuple[NDArray[np.float32], Reading]]


def select(
    group: RolloutGroup,
    *,
    preset: PresetName | None = None,
    rule: Rule | None = None,
    kind: Kind | None = None,
    readout: str | Readout | None = None,
    k: int | None = None,
    kernel: Kernel | None = None,
    fusion: Fusion | Literal["none"] | None = None,
    confidence: Confidence | None = None,
    layers: Layers = None,
) -> Selection:
    """Pick one rollout, or abstain when fewer than two are located.

    `preset` names a documented combination: "paper" (the default), "paper+dc", "strict", "best" or "best+text". A `rule` says it
    in full (`radmoe.Rule`, which also has a budget of tokens and what is compared); whatever else is given replaces its part.
    `kind` is the group's own unless given; where the group has none either, it is inferred from the markers in the rollouts. The
    kind decides what is not given. In the paper's preset that is delimiter@16, k=10 and the weighted kernel for math, choice and
    code; boundary@16 with the same k and kernel for text; every boundary as a set, k=4 and the binary kernel for agents.

    fusion "none" is RAD. "conf50" keeps the more confident half and takes the densest rollout in it; ties go to the
    more confident. "ranksum" adds the ranks of density and confidence. `confidence` names the scalar: "cbw"
    (bottom window) or "tail" of DeepConf, or "likelihood". Without fusion, ties go
    to the lowest index. Densities that float32 similarities cannot tell apart are ties.

    No answer is read unless the rule compares text; a rollout whose answer never closes is then not located.

    Cost: one window per rollout from disk, then O(n^2 s) for n located rollouts of support s.
    """
    name = None if readout is None else str(readout)
    rule = (rule or Rule()).but(
        preset=preset, readout=name, k=k, kernel=kernel, fusion=fusion, confidence=confidence, layers=layers
    )
    kind = kind or group.kind
    setting = rule.settle(kind, len(group))
    if kind is None and (setting.compare != "routing" or needs_marker(rule.readout)):
        kind = infer_kind([group], f"problem {group.problem_id!r}")
        if kind is None:  # too few rollouts have a marker to tell the kind
            return _abstain(group, Reading(_NOTHING, np.zeros(len(group), bool), (None,) * len(group)), setting)
        setting = rule.settle(kind, len(group))
    return select_settled(group, setting)


def select_settled(
    group: RolloutGroup,
    setting: Setting,
    *,
    similar: Similar | None = None,
    confidence: Callable[[int], float] | None = None,
) -> Selection:
    """Pick one rollout by a setting.

    `similar` compares the rollouts and `confidence` rates one of them, where a caller has this at hand for several settings.
    """
    S, reading, text = compared(group, setting, similar or similarity)
    members, confidences = np.flatnonzero(reading.located).tolist(), None
    if setting.fusion is not None and len(members) >= 2:
        rate = confidence or (lambda i: confidence_of(group, i, setting))
        confidences = np.array([rate(i) for i in members])
    return choose(group, S, reading, setting, confidence=confidences, text=text)


def choose(
    group: RolloutGroup,
    S: NDArray[np.float32],
    reading: Reading,
    setting: Setting,
    *,
    confidence: Floats | None = None,
    text: NDArray[np.float32] | None = None,
) -> Selection:
    """Pick as `select` does, from a consensus matrix S [n, n] at hand, so that several settings can share one.

    `confidence` has one number for each located rollout [n]. It is needed where the setting has a fusion. `text` is a second
    consensus matrix [n, n], whose density counts as much as that of S: their ranks are added.
    """
    members = np.flatnonzero(reading.located)
    if len(members) < 2:
        return _abstain(group, reading, setting)
    fusion = setting.fusion
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
    group: RolloutGroup, setting: Setting, *, anchors: Anchors | None = None
) -> tuple[NDArray[np.float32], Reading]:
    """The consensus matrix S [n, n] of the located rollouts, and what was read. `anchors` are passed on to `read`."""
    binary = setting.kernel == "binary"
    options: dict[str, Any] = {"layers": setting.layers, "budget": setting.budget, "seed": setting.seed}
    reading = read(group, setting.readout, setting.kind, **options, binary=binary, anchors=anchors)
    return (binary_jaccard if binary else weighted_jaccard)(reading.Z), reading


def compared(
    group: RolloutGroup, setting: Setting, similar: Similar
) -> tuple[NDArray[np.float32], Reading, NDArray[np.float32] | None]:
    """What a setting compares: a consensus matrix [n, n], what was read, and that of the texts where both count.

    Where text counts, a rollout is located only if its answer closes. `similar` compares routing (`similarity`).
    """
    if setting.compare == "routing":
        return *similar(group, setting), None
    texts = answer_texts(group, setting.kind, budget=setting.budget)
    if setting.compare == "routing+text":
        return with_text(*similar(group, setting), texts)
    anchors = tuple(locate_all(group, setting.readout, setting.kind, budget=setting.budget, seed=setting.seed))
    located = np.array([anchor is not None for anchor in anchors], bool)
    n = int(located.sum())
    reading = Reading(np.zeros((n, 0), np.float32), located, anchors)
    _, reading, text = with_text(np.zeros((n, n), np.float32), reading, texts)
    return text, reading, None


def with_text(
    S: NDArray[np.float32], reading: Reading, texts: Sequence[str | None]
) -> tuple[NDArray[np.float32], Reading, NDArray[np.float32]]:
    """Leave out the rollouts whose answer has no text. Returns the similarities of routing [m, m] and the reading of the m others,
    and the similarities of their texts [m, m]."""
    closed = np.array([text is not None for text in texts], bool)
    keep, both = closed[reading.located], reading.located & closed
    anchors = tuple(anchor if here else None for anchor, here in zip(reading.anchors, both, strict=True))
    told = [text for text, here in zip(texts, both, strict=True) if text is not None and here]
    return S[np.ix_(keep, keep)], Reading(reading.Z[keep], both, anchors), text_similarity(told)


_NOTHING = np.zeros((0, 0), np.float32)


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
    near = knn(S, k)
    mean = density / max(near.shape[1], 1)  # conf50 of two scores one alone
    score = mean if score is density else score
    rank = np.empty(len(runs), np.int64)
    rank[best_first] = np.arange(len(runs))
    root = climb(S, k, rank)
    pick = int(best_first[0])
    others = score[root != pick]
    total = len(reading.located)
    return Selection(
        index=int(runs[pick]),
        rollout_index=_number(group, int(runs[pick])),
        density=_spread(mean, runs, total, np.nan),
        k=near.shape[1],
        basin=tuple(int(i) for i in runs[root == pick]),
        margin=float(score[pick] - others.max()) if len(others) else float("nan"),
        neighbours=tuple(int(i) for i in runs[near[pick]]),
        score=_spread(score, runs, total, np.nan),
        roots=_spread(runs[root], runs, total, -1),
        rollout=group.rollouts[int(runs[pick])],
        vocab=group.vocab,
        **_said(reading, setting),
    )


def confidence_of(group: RolloutGroup, i: int, setting: Setting) -> float:
    """The confidence of one rollout by a setting's scalar. Raises an InputError that names the column it lacks."""
    rollout: Trace = group.rollouts[i]
    likely = setting.confidence == "likelihood"
    column = rollout.sampled_logprobs if likely else rollout.topk_logprobs
    if column is None:
        lacks = (
            "logprobs of its tokens (the column sampled_logprobs)"
            if likely
            else "top-k logprobs (the column topk_logprobs)"
        )
        raise InputError(
            f"rollout {i} of problem {group.problem_id!r} has no {lacks}, which preset {setting.preset} "
            f"with fusion {setting.fusion} and confidence {setting.confidence} needs: capture them, or select with fusion none"
        )
    if likely:
        return likelihood(column)
    scalar = "tail" if setting.confidence == "tail" else "bottom-window"
    return rollout_confidence(column, scalar, window=setting.confidence_window)


def _said(reading: Reading, setting: Setting) -> dict[str, Any]:
    """What a selection says of what was read, and of the setting that made it."""
    said: dict[str, Any] = {"located": reading.located, "anchors": reading.anchors}
    said |= {name: getattr(setting, name) for name in ("kind", "readout", "kernel", "preset", "fusion", "compare")}
    return said | {"confidence": None if setting.fusion is None else setting.confidence}


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
        k=0,
        basin=(),
        margin=float("nan"),
        score=blank,
        roots=np.full(len(group), -1, np.int64),
        **_said(reading, setting),
    )

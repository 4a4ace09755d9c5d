"""The data types that all parts of radmoe share: frozen dataclasses that check their fields."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, Self, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from radmoe.errors import InputError, RolloutError
from radmoe.vocab import Vocab

Kind = Literal["math", "choice", "code", "text", "agent"]  # what an answer looks like: it decides the marker
KINDS: tuple[Kind, ...] = get_args(Kind)
PresetName = Literal["paper", "paper+dc", "strict", "best", "best+text"]  # a documented way to select
Kernel = Literal["weighted", "binary"]  # how two route vectors are compared
Fusion = Literal["conf50", "ranksum"]  # how confidence joins density; None is plain RAD
Confidence = Literal["cbw", "tail", "likelihood"]  # a scalar of a rollout
Compare = Literal["routing", "text", "routing+text"]  # what makes two rollouts alike

_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
_TOP_K = ("num_experts_per_tok", "num_experts_per_token", "experts_per_token", "moe_topk", "moe_k", "top_k_experts")
MAX_EXPERTS = 2**15  # expert ids are int16 on disk
WEIGHT_SUM_TOLERANCE = 1e-2  # float16 and bfloat16 rounding of K weights stays far below

Rows = tuple[NDArray[np.int16], NDArray[np.float16] | None]


@dataclass(frozen=True)
class RouterShape:
    """The shape of a router: L MoE layers, E routed experts per layer (shared experts not counted), K experts per
    token.
    """

    layers: int
    experts: int
    top_k: int

    def __post_init__(self) -> None:
        for name in ("layers", "experts", "top_k"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
                raise InputError(f"RouterShape {name} must be a positive integer, got {value!r}")
            object.__setattr__(self, name, int(value))
        if self.experts > MAX_EXPERTS:
            raise InputError(f"RouterShape experts is {self.experts}, at most {MAX_EXPERTS} fit int16 ids")
        if self.top_k > self.experts:
            raise InputError(f"RouterShape top_k={self.top_k} exceeds experts={self.experts}")

    @classmethod
    def from_config(cls, config: Any) -> Self:
        """The router of a model by its configuration.

        That is a transformers config, its dictionary, or the path of a config.json or of the directory it lies in. Raises an
        InputError for a model without experts.
        """
        get = _config_reader(config)
        experts, top_k = (next((value for name in names if (value := get(name))), 0) for names in (_EXPERTS, _TOP_K))
        if not get("num_hidden_layers") or experts < 2 or top_k < 1:
            raise InputError(
                f"this configuration (model_type {get('model_type')!r:.60}) has no router: pass that of a mixture-of-experts model"
            )
        return cls(len(sparse_layers(get)), experts, top_k)

    def __str__(self) -> str:
        return f"{self.layers}x{self.experts} top-{self.top_k}"


def sparse_layers(get: Callable[[str], Any]) -> list[int]:
    """The layers of a text model that have experts, as far as its configuration names those without."""
    layers, layer_types = range(get("num_hidden_layers")), get("mlp_layer_types")
    if layer_types is not None:
        return [layer for layer in layers if layer_types[layer] == "sparse"]
    dense, first, every = (
        set(get("mlp_only_layers") or ()),
        get("first_k_dense_replace") or 0,
        get("decoder_sparse_step") or 1,
    )
    return [layer for layer in layers if layer not in dense and layer >= first and (layer + 1) % every == 0]


def _config_reader(config: Any) -> Callable[[str], Any]:
    """What looks up a field of the text model's configuration; None for a field that is not there."""
    if isinstance(config, str | os.PathLike):
        path = Path(config)
        path = path / "config.json" if path.is_dir() else path
        try:
            config = json.loads(path.read_bytes())
        except (OSError, ValueError) as error:
            raise InputError(f"cannot read {path} ({error}): pass a config.json, or the directory it lies in") from None
    if isinstance(config, dict):
        return dict(config.get("text_config") or config).get
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    return lambda name: getattr(text, name, None)


@dataclass(frozen=True)
class Anchor:
    """The position of a marker: the first token that overlaps it, the number m of tokens that do, and its anchor
    family.
    """

    start: int
    length: int
    family: str


class Step(NamedTuple):
    """One turn of the model in a trajectory: a request of its own.

    The request begins with the first `kept` tokens of the request before it and of what was generated then; None keeps
    all of these, as a history does that only grows. `given` are the tokens that follow (in the first step: the whole
    prompt). `start` is the offset, among all tokens that the model generated, of the first one of this turn.
    """

    given: tuple[int, ...]
    start: int
    kept: int | None = None


class Trace(Protocol):
    """What selection reads of a rollout: its tokens, and the rows of routing that exist.

    `Rollout` holds one in memory, and a pool hands out traces that read their rows from disk. Asking `rows` for a
    token whose routing was not captured is a RolloutError; nothing is made up in its place.
    """

    @property
    def token_ids(self) -> NDArray[np.int32]:
        """The generated tokens [T]."""

    @property
    def sampled_logprobs(self) -> NDArray[np.float32] | None:
        """The log-probability of each generated token [T]; None where it was not kept."""

    @property
    def topk_logprobs(self) -> NDArray[np.float32] | None:
        """The C largest log-probabilities at each token [T, C]; None where they were not kept."""

    @property
    def positions(self) -> NDArray[np.int32] | None:
        """The tokens whose routing exists, ascending; None where all have it."""

    @property
    def steps(self) -> tuple[Step, ...]:
        """The model's turns; empty for a rollout of a single prompt."""

    @property
    def starts(self) -> NDArray[np.int64]:
        """The offset of the first token of each turn; empty for a rollout of a single prompt."""

    @property
    def has_weights(self) -> bool:
        """Whether rows carry weights beside expert ids."""

    def __len__(self) -> int:
        """T, the number of generated tokens."""

    def rows(self, start: int, stop: int, *, weights: bool = True) -> Rows:
        """Expert ids and weights [n, L, K] of tokens [start, stop), cut at the end of the rollout."""

    def rows_of(self, tokens: NDArray[np.int64], *, weights: bool = True) -> Rows:
        """Expert ids and weights [n, L, K] of these tokens, which ascend."""


@dataclass(frozen=True, eq=False)
class Rollout:
    """One completed rollout in memory: T tokens and the routing that predicted them.

    `expert_ids[t]` and `weights[t]` are R(t), recorded in the forward pass that predicts `token_ids[t]`
    (Sec. "Answer-string-free protocol"). Weights sum to 1 per token and layer; None means ids only, and every chosen
    expert then weighs 1/K. Where only some rows were captured, `positions` names their tokens and R counts them;
    otherwise R is T. A trajectory of several turns has `steps`.
    """

    token_ids: NDArray[np.int32]  # [T]
    expert_ids: NDArray[np.int16]  # [R, L, K]
    weights: NDArray[np.float16] | None = None  # [R, L, K]
    sampled_logprobs: NDArray[np.float32] | None = None  # [T]
    topk_logprobs: NDArray[np.float32] | None = None  # [T, C]
    positions: NDArray[np.int32] | None = None  # [R]
    steps: tuple[Step, ...] = ()

    def __post_init__(self) -> None:
        tokens = _integers("token_ids", self.token_ids, np.int32, 1)
        length = len(tokens)
        if length == 0:
            raise RolloutError("a rollout of zero tokens carries no routing: keep its end token, or leave it out")
        experts = _integers("expert_ids", self.expert_ids, np.int16, 3)
        positions = self.positions
        if positions is None:
            _same_length("expert_ids", experts, length)
        else:
            positions = _integers("positions", positions, np.int32, 1)
            _check_positions(positions, len(experts), length)
        weights = self.weights
        if weights is not None:
            weights = np.asarray(weights)
            if weights.shape != experts.shape:
                raise RolloutError(f"weights have shape {weights.shape}, expert_ids {experts.shape}: they must agree")
            check_weights(weights)
            weights = weights.astype(np.float16, copy=False)
        sampled = self.sampled_logprobs
        if sampled is not None:
            sampled = _logprobs("sampled_logprobs", sampled, 1, length)
        topk = self.topk_logprobs
        if topk is not None:
            topk = _logprobs("topk_logprobs", topk, 2, length)
        for name, value in (
            ("token_ids", tokens),
            ("expert_ids", experts),
            ("weights", weights),
            ("sampled_logprobs", sampled),
            ("topk_logprobs", topk),
            ("positions", positions),
            ("steps", check_steps(self.steps, length)),
        ):
            object.__setattr__(self, name, value)

    def __len__(self) -> int:
        return len(self.token_ids)

    @property
    def has_weights(self) -> bool:
        return self.weights is not None

    @property
    def starts(self) -> NDArray[np.int64]:
        return np.array([step.start for step in self.steps], np.int64)

    def rows(self, start: int, stop: int, *, weights: bool = True) -> Rows:
        """Expert ids and weights [n, L, K] of tokens [start, stop), cut at the end of the rollout."""
        first, last = rows_at(self.positions, start, min(stop, len(self)), "this rollout")
        mass = self.weights[first:last] if weights and self.weights is not None else None
        return self.expert_ids[first:last], mass

    def rows_of(self, tokens: NDArray[np.int64], *, weights: bool = True) -> Rows:
        """Expert ids and weights [n, L, K] of these tokens, which ascend."""
        rows = places_of(self.positions, tokens, "this rollout")
        return self.expert_ids[rows], self.weights[rows] if weights and self.weights is not None else None


@dataclass(frozen=True, eq=False, repr=False)
class RolloutGroup:
    """The N rollouts of one problem, which are RAD's whole input.

    `vocab` may be given as a tokenizer. `kind` says what an answer looks like; None if it is unknown. `rollout_indices`
    are the rollouts' numbers in their pool (by default 0 to N-1).
    """

    problem_id: str
    rollouts: Sequence[Trace]
    shape: RouterShape
    vocab: Vocab
    kind: Kind | None = None
    rollout_indices: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        rollouts = tuple(self.rollouts)
        indices = tuple(range(len(rollouts))) if self.rollout_indices is None else tuple(self.rollout_indices)
        if len(indices) != len(rollouts):
            raise InputError(f"{len(rollouts)} rollouts but {len(indices)} rollout_indices: give one for each")
        for name, value in (
            ("problem_id", str(self.problem_id)),
            ("rollouts", rollouts),
            ("vocab", Vocab.of(self.vocab)),
            ("kind", None if self.kind is None else check_kind(self.kind)),
            ("rollout_indices", indices),
        ):
            object.__setattr__(self, name, value)
        for i, rollout in enumerate(rollouts):
            if isinstance(rollout, Rollout):  # a stored rollout is checked as its rows are read
                check_routing(rollout, self.shape, f"rollout {i} of problem {self.problem_id!r}")

    def __len__(self) -> int:
        return len(self.rollouts)

    def __repr__(self) -> str:
        return f"RolloutGroup({self.problem_id!r}: {len(self)} rollouts, {self.kind or 'no kind'}, router {self.shape})"

    def _repr_html_(self) -> str:
        assert self.rollout_indices is not None
        rows = [(index, len(one)) for index, one in zip(self.rollout_indices, self.rollouts, strict=True)]
        return html_table(repr(self), ("rollout", "tokens"), rows)


@dataclass(frozen=True, eq=False, repr=False)
class Selection:
    """Which rollout was picked, and why.

    `index` is the pick's place in the group and `rollout_index` its number in the pool; both are None when RAD abstains
    (fewer than two rollouts scored). `density` is a rollout's mean similarity to its k nearest: q of Eq. 5, divided by k. `score`
    is what was maximised: the density, or the rank sum under fusion="ranksum". A rollout that was not scored has NaN.
    `roots[i]` is the mode that rollout i climbs to (its basin), -1 if unscored; `basin` lists the rollouts of the pick's basin;
    `margin` is the pick's score minus the best score in any other basin, NaN where there is none. `kind`, `readout`, `kernel`,
    `preset`, `fusion` (None: confidence did not count), `confidence` and `compare` say by which rule. `probability` is that of the
    pick's being right, where a calibration was applied (`radmoe.selection.calibration`); `probability_reason` says why one that was
    looked for gives none. `rollout` is the pick itself, and `text` what it says.
    """

    index: int | None
    rollout_index: int | None
    density: NDArray[np.float64]  # [N]
    located: NDArray[np.bool_]  # [N]
    anchors: tuple[Anchor | None, ...]  # [N]
    k: int
    basin: tuple[int, ...]
    margin: float
    neighbours: tuple[int, ...] = ()
    score: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    roots: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    kind: Kind | None = None
    readout: str = ""
    kernel: Kernel = "weighted"
    preset: PresetName = "paper"
    fusion: Fusion | None = None
    confidence: Confidence | None = None
    compare: Compare = "routing"
    probability: float | None = None
    probability_reason: str = ""
    rollout: Trace | None = None
    vocab: Vocab | None = None

    @property
    def abstained(self) -> bool:
        return self.index is None

    @property
    def text(self) -> str | None:
        """The pick's text without its end token; None where there is no pick, or its tokens are not at hand."""
        if self.index is None or self.rollout is None or self.vocab is None:
            return None
        ids = self.rollout.token_ids
        ids = ids[:-1] if int(ids[-1]) in self.vocab.controls.values() else ids
        return self.vocab.decode_bytes(ids).decode("utf-8", "replace")

    def to_dict(self) -> dict[str, Any]:
        """The selection for JSON, the same on the command line, over HTTP and for agents (docs/readouts.md lists the keys).

        NaN is None. `located` and `density` have one entry for each rollout.
        """
        lists = {
            "located": self.located.tolist(),
            "density": [None if np.isnan(value) else value for value in self.density.tolist()],
            "basin": list(self.basin),
            "margin": None if np.isnan(self.margin) else float(self.margin),
            "probability_reason": self.probability_reason or None,
        }
        return {name: lists.get(name, getattr(self, name)) for name in SELECTION_KEYS}

    def __repr__(self) -> str:
        setting = f"{self.kind or 'no kind'}, {self.readout}, k={self.k}"
        if self.index is None:
            return f"Selection(abstained: {int(self.located.sum())} of {len(self.located)} rollouts located; {setting})"
        return (
            f"Selection(rollout {self.rollout_index} of {len(self.located)}: density {self.density[self.index]:.3f}, "
            f"basin of {len(self.basin)}, margin {self.margin:.3f}; {setting})"
        )

    def _repr_html_(self) -> str:
        rows = [
            (i, "pick" if i == self.index else "", "" if np.isnan(density) else f"{density:.3f}", i in self.basin)
            for i, density in enumerate(self.density.tolist())
        ]
        return html_table(repr(self), ("rollout", "", "density", "in the pick's basin"), rows)


SELECTION_KEYS = (  # of `Selection.to_dict`
    *(
        "index",
        "rollout_index",
        "abstained",
        "kind",
        "readout",
        "k",
        "kernel",
        "preset",
        "fusion",
        "confidence",
        "compare",
    ),
    *("located", "density", "basin", "margin", "probability", "probability_reason"),
)


def html_table(caption: str, heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table for a notebook; every text is escaped."""

    def line(tag: str, cells: Sequence[object]) -> str:
        return "<tr>" + "".join(f"<{tag}>{escape(str(cell))}</{tag}>" for cell in cells) + "</tr>"

    body = "".join(line("td", row) for row in rows)
    return f"<table><caption>{escape(caption)}</caption>{line('th', heads)}{body}</table>"


def check_kind(kind: object) -> Kind:
    """Return the kind, or raise an InputError that lists the known ones."""
    if kind not in KINDS:
        raise InputError(f"unknown kind {kind!r}: use one of {', '.join(KINDS)}")
    return kind


def rows_at(positions: NDArray[np.int32] | None, start: int, stop: int, where: str) -> tuple[int, int]:
    """The range of stored rows that hold tokens [start, stop). Raises a RolloutError if one of them was not captured."""
    if positions is None:
        return start, stop
    first, last = (int(i) for i in np.searchsorted(positions, (start, stop)))
    if last - first != stop - start:
        raise RolloutError(
            f"{where} has the routing of {len(positions)} of its tokens, not of all in [{start}, {stop}): "
            "use a readout it was captured for (radmoe inspect lists a pool's)"
        )
    return first, last


def places_of(positions: NDArray[np.int32] | None, tokens: NDArray[np.int64], where: str) -> NDArray[np.int64]:
    """The stored rows that hold these tokens, which ascend. Raises a RolloutError if one of them was not captured."""
    if positions is None:
        return tokens
    places = np.searchsorted(positions, tokens)
    if len(tokens) and (places[-1] >= len(positions) or (positions[places] != tokens).any()):
        raise RolloutError(
            f"{where} has the routing of {len(positions)} of its tokens, not of all {len(tokens)} that are to be read: "
            "use a readout it was captured for (radmoe inspect lists a pool's)"
        )
    return places


def check_steps(steps: Sequence[Step], tokens: int) -> tuple[Step, ...]:
    """Check steps and return them as tuples of ints.

    Raises a RolloutError unless their offsets rise from 0 and stay below `tokens`, and no step keeps more tokens than
    the requests before it have.
    """
    copies = tuple(
        Step(tuple(int(token) for token in given), int(start), None if kept is None else int(kept))
        for given, start, kept in steps
    )
    check_starts([step.start for step in copies], tokens)
    if any(token < 0 for step in copies for token in step.given):
        raise RolloutError("the tokens a step was given must not be negative")
    length = 0  # of the request before, with what was generated then
    stops = [*(step.start for step in copies[1:]), tokens]
    for number, (step, stop) in enumerate(zip(copies, stops if copies else (), strict=True)):
        if step.kept is not None and not 0 <= step.kept <= length:
            raise RolloutError(f"step {number} keeps {step.kept} tokens of the one before it, which has {length}")
        length = (length if step.kept is None else step.kept) + len(step.given) + stop - step.start
    return copies


def check_starts(starts: Sequence[int], tokens: int) -> None:
    """Refuse offsets of steps, with a RolloutError, unless they rise from 0 and stay below `tokens`."""
    if len(starts) and (starts[0] != 0 or list(starts) != sorted(set(starts)) or starts[-1] >= tokens):
        raise RolloutError(f"steps must start at offsets rising from 0 and below {tokens} tokens, got {list(starts)}")


def check_weights(weights: NDArray[Any], where: str = "weights") -> None:
    """Refuse NaN, negative and non-normalised routing weights [..., K], naming the first offender."""
    if weights.dtype.kind != "f":
        raise RolloutError(f"{where} must be floating point, got {weights.dtype}")
    with np.errstate(invalid="ignore", over="ignore"):  # infinities are refused below, not warned of
        wide = weights.astype(np.float32, copy=False)  # once: numpy is slow on float16
        sums = wide @ np.ones(weights.shape[-1], np.float32)
    off = ~(np.abs(sums - 1.0) <= WEIGHT_SUM_TOLERANCE)  # a NaN sum is off too
    if not off.any() and wide.min(initial=0) >= 0:
        return
    if np.isnan(weights).any():
        raise RolloutError(
            f"{where} are NaN at [token, layer, k] = {_first(np.isnan(weights))}: recapture this rollout"
        )
    if weights.min(initial=0) < 0:
        raise RolloutError(f"{where} are negative at [token, layer, k] = {_first(weights < 0)}: recapture this rollout")
    at = _first(off)
    raise RolloutError(
        f"{where} at [token, layer] = {at} sum to {float(sums[tuple(at)]):.4g}, not 1: divide each token's weights by their sum"
    )


def check_ids(ids: NDArray[Any], experts: int, where: str = "expert_ids") -> None:
    """Refuse expert ids outside [0, E)."""
    if ids.size and (ids.min() < 0 or ids.max() >= experts):
        bad = (ids < 0) | (ids >= experts)
        raise RolloutError(
            f"{where} hold {int(ids[bad][0])} at [token, layer, k] = {_first(bad)}, outside [0, {experts})"
        )


def check_routing(rollout: Rollout, shape: RouterShape, where: str) -> None:
    """Refuse a rollout whose routing does not fit the router."""
    if rollout.expert_ids.shape[1:] != (shape.layers, shape.top_k):
        raise RolloutError(
            f"{where} has routing of {rollout.expert_ids.shape[1]} layers, top-{rollout.expert_ids.shape[2]}; the router is {shape}"
        )
    check_ids(rollout.expert_ids, shape.experts, f"expert_ids of {where}")


def _first(mask: NDArray[np.bool_]) -> list[int]:
    return [int(i) for i in np.argwhere(mask)[0]]


def _integers(name: str, value: ArrayLike, dtype: type[np.integer[Any]], ndim: int) -> NDArray[Any]:
    array = np.asarray(value)
    if array.size == 0 and array.ndim == ndim:
        return array.astype(dtype)
    if array.dtype.kind not in "iu":
        raise RolloutError(f"{name} must be integers, got {array.dtype}")
    if array.ndim != ndim:
        raise RolloutError(f"{name} must have {ndim} dimension(s), got shape {array.shape}")
    info = np.iinfo(dtype)
    if array.min() < (0 if ndim == 1 else info.min) or array.max() > info.max:
        raise RolloutError(f"{name} range over [{array.min()}, {array.max()}] and do not fit {np.dtype(dtype).name}")
    return array.astype(dtype, copy=False)


def _logprobs(name: str, value: ArrayLike, ndim: int, length: int) -> NDArray[np.float32]:
    array = np.asarray(value)
    if array.dtype.kind not in "fiu" or array.ndim != ndim:
        raise RolloutError(f"{name} must be floats with {ndim} dimension(s), got {array.dtype} of shape {array.shape}")
    _same_length(name, array, length)
    if np.isnan(array).any():
        raise RolloutError(
            f"{name} are NaN at {_first(np.isnan(array))}: recapture this rollout, or leave the column out"
        )
    return array.astype(np.float32, copy=False)


def _check_positions(positions: NDArray[Any], rows: int, length: int) -> None:
    if len(positions) != rows:
        raise RolloutError(f"{len(positions)} positions for {rows} rows of routing: give one position per row")
    if rows and (np.diff(positions) <= 0).any():
        raise RolloutError("positions must be distinct and ascending")
    if rows and positions[-1] >= length:
        raise RolloutError(f"positions go up to {int(positions[-1])}, the rollout has {length} tokens")


def _same_length(name: str, array: NDArray[Any], length: int) -> None:
    if len(array) != length:
        raise RolloutError(f"{name} have {len(array)} rows for {length} tokens: one row per generated token")

"""Selects among the rollouts of a request, and builds the `radmoe` object of the answer."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from radmoe.engines.prompts import style_of
from radmoe.errors import InputError, RadmoeError
from radmoe.pool import Profile
from radmoe.selection.calibration import Calibration, find_calibration
from radmoe.selection.kinds import infer_kind
from radmoe.selection.origin import Origin, routing_kept
from radmoe.selection.rule import PRESETS, Rule
from radmoe.selection.selector import select
from radmoe.types import SELECTION_KEYS, Kind, PresetName, Rollout, RolloutGroup, Selection

if TYPE_CHECKING:
    from radmoe.serve.api_request import ApiRequest, Best
    from radmoe.serve.backends import Router, SampledRollouts, Tokens

FALLBACKS = ("likelihood",)
EQUAL = "at temperature 0 all rollouts are equal, so one was sampled: ask with a higher temperature to have a choice"
RESHAPING: dict[str, tuple[Any, ...]] = {  # what else changes which tokens are drawn -> the values that do not
    "top_k": (0, -1),
    "min_p": (0,),
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "repetition_penalty": (1,),
    "logit_bias": ({},),
}


class KindReading(NamedTuple):
    """The kind of the rollouts, its source ("request" or "markers"), and if there is none the reason."""

    kind: Kind | None
    source: str
    reason: str = ""


@dataclass(frozen=True)
class ServedPick:
    """The order in which choices are returned, the pick first, and what the answer says about it."""

    order: list[int]
    document: dict[str, Any]
    group: RolloutGroup | None
    selection: Selection | None


def check_preset(name: Any) -> PresetName:
    """The preset's name; InputError for one that is not known."""
    return Rule(preset=name).preset or "paper"


def preset_of(calibration: Calibration) -> PresetName:
    """The preset whose picks a calibration is for; InputError where it was fitted for another way to select."""
    if others := sorted(set(calibration.rule.to_json()) - {"preset"}):
        raise InputError(
            f"this calibration was fitted with {', '.join(others)}, and the gateway selects by presets alone: "
            "fit one with radmoe calibrate and no other option than --preset"
        )
    return calibration.rule.preset or "paper"


def logprobs_needed(best: Best) -> int:
    """How many logprobs per token selection needs: 0 none, 1 the sampled token's own, 20 those of DeepConf."""
    rules = PRESETS[best.preset].rules.values()
    confidences = {rule.confidence for rule in rules if rule.fusion != "none"}
    if confidences - {"likelihood"}:
        return 20
    return 1 if confidences or best.fallback == "likelihood" else 0


def settle(best: Best, tokens: Tokens, router: Router) -> KindReading:
    """The kind of these rollouts: the request's, or else inferred from their markers."""
    if best.kind is not None:
        return KindReading(best.kind, "request")
    shape = router.captured
    empty = np.empty((0, shape.layers, shape.top_k), np.int16)
    blank = [Rollout(ids, empty, positions=np.empty(0, np.int32)) for ids in tokens]
    group = RolloutGroup("request", blank, shape, router.vocab)
    try:
        kind = infer_kind([group], "this request")
    except InputError:
        return KindReading(None, "markers", "the rollouts carry the markers of two kinds alike: give radmoe.kind")
    if kind is None:
        return KindReading(None, "markers", "no marker of an answer is in most rollouts: give radmoe.kind")
    return KindReading(kind, "markers")


def rows_read(best: Best, kind: Kind) -> Profile:
    """The profile of the rows that selection reads of rollouts of this kind."""
    return Profile(readouts=(Rule(preset=best.preset).settle(kind, best.n).readout,))


def origin_for(ask: ApiRequest, sampled: SampledRollouts, checkpoint: str | None) -> Origin:
    """The origin of a request's rollouts. A style or setting that is not known is None."""
    drawn: dict[str, Any] = dict.fromkeys(("temperature", "top_p"))
    if sampled.sampling is not None:
        drawn = {name: float(getattr(sampled.sampling, name)) for name in drawn}
    elif all(ask.body.get(name) in (None, *neutral) for name, neutral in RESHAPING.items()):
        given = {name: ask.body.get(name) for name in drawn}
        drawn = {name: float(value) if isinstance(value, int | float) else None for name, value in given.items()}
    arguments = dict(ask.body.get("chat_template_kwargs") or {})
    if ask.body.get("reasoning_effort") is not None:
        arguments["reasoning_effort"] = ask.body["reasoning_effort"]
    layers = None if sampled.router is None else sampled.router.layers
    return Origin(
        ask.model,
        checkpoint,
        style_of(arguments) if ask.route == "chat" else None,
        **drawn,
        routing=routing_kept(layers, weights=True),
        adaptive=ask.best is not None and ask.best.adaptive,
    )


def pick(
    best: Best,
    sampled: SampledRollouts,
    identity: str,
    origin: Origin | None = None,
    calibration: Calibration | None = None,
    noise: float | None = None,
) -> ServedPick:
    """Choose among the rollouts of a request. Raises EngineError for routing that does not fit.

    Where there is no routing, or RAD abstains, the likeliest rollout comes first if the request asked for that
    fallback, else the first one; `method` and `reason` say so. How sure a pick is says the `calibration`, or else the one that
    ships for rollouts of this `origin`.
    """
    group, selection, reason = None, None, sampled.trouble
    if sampled.rollouts is not None:
        try:
            group, selection, reason = _read(best, sampled, sampled.rollouts(), identity)
        except RadmoeError:
            if best.fallback is None or sampled.likelihoods is None:
                raise
            reason = "the model server's routing does not fit its tokens"
    if selection is not None and selection.index is not None:
        selection, order = selection.with_noise(noise), _by_score(selection)
        if origin is not None:
            assert group is not None
            if not all(rollout.has_weights for rollout in group.rollouts):
                origin = replace(origin, routing=f"{origin.routing} without weights")
            rule, source = Rule(preset=best.preset), "the server's calibration"
            selection = find_calibration(origin, calibration, rule=rule, source=source).judge(selection, group)
        return ServedPick(order, _document(best, sampled, "rad", order, selection, ""), group, selection)
    if best.fallback == "likelihood" and sampled.likelihoods is not None:
        likelihoods = sampled.likelihoods
        order = sorted(range(len(sampled.choices)), key=lambda i: (-likelihoods[i], i))
        return ServedPick(order, _document(best, sampled, "likelihood", order, selection, reason), group, selection)
    order = list(range(len(sampled.choices)))
    return ServedPick(order, _document(best, sampled, "first", order, selection, reason), group, selection)


def _read(
    best: Best, sampled: SampledRollouts, rollouts: list[Rollout], identity: str
) -> tuple[RolloutGroup, Selection | None, str]:
    """The group of a request, what RAD selects from it, and why it selects nothing where it does not."""
    router, reading = sampled.router, sampled.reading
    assert router is not None
    assert reading is not None
    group = RolloutGroup(identity, rollouts, router.captured, router.vocab, reading.kind)
    if best.n == 1:
        return group, None, EQUAL
    if reading.kind is None:
        return group, None, reading.reason
    selection = select(group, preset=best.preset)
    if selection.abstained:
        located = int(selection.located.sum())
        return (
            group,
            selection,
            f"{located} of {len(group)} rollouts have the marker of kind {reading.kind}: two are needed",
        )
    return group, selection, ""


def _by_score(selection: Selection) -> list[int]:
    """The pick, then the other scored rollouts by falling score, then those that were not scored."""
    score = np.where(np.isnan(selection.score), -np.inf, selection.score)
    others = [int(i) for i in np.argsort(-score, kind="stable") if i != selection.index]
    assert selection.index is not None
    return [selection.index, *others]


def _document(
    best: Best, sampled: SampledRollouts, method: str, order: list[int], selection: Selection | None, reason: str
) -> dict[str, Any]:
    """The `radmoe` object of an answer. Its fields are always the same; null says that there is nothing to say."""
    reading = sampled.reading
    document: dict[str, Any] = {
        "method": method,
        "reason": reason or None,
        "pick": order[0],
        "kind_source": None if reading is None or reading.kind is None else reading.source,
        "likelihood": None,
        **dict.fromkeys(SELECTION_KEYS),
        "kind": None if reading is None else reading.kind,
        "preset": best.preset,
        "sampled": {
            "rollouts": len(sampled.choices),
            "tokens": sampled.tokens,
            "finish_reasons": dict(Counter(str(choice["finish_reason"]) for choice in sampled.choices)),
        },
    }
    if sampled.likelihoods is not None and method == "likelihood":
        document["likelihood"] = _number(sampled.likelihoods[order[0]])
    if selection is not None:
        document |= selection.to_dict()
    return document


def _number(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None

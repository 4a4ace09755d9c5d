"""Parses and checks the body of a request, plain or best-of-N."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from radmoe.engines.base import TEMPERATURES
from radmoe.errors import InputError
from radmoe.serve.api_errors import ApiError, bad_request
from radmoe.serve.best_of import FALLBACKS, check_preset
from radmoe.serve.settings import Settings
from radmoe.types import Kind, PresetName, check_kind

Route = Literal["chat", "text"]  # /v1/chat/completions, /v1/completions
FIELDS = ("n", "preset", "kind", "fallback", "adaptive")
_SUFFIX = re.compile(r"(.*)#rad(?:-([0-9]{1,9}))?", re.DOTALL)
_UNANSWERABLE = ("best_of", "echo", "suffix", "use_beam_search")  # they change which tokens an answer has
_LONGEST_MODEL = 1000
_MOST = (1 << 31) - 1
_WHOLE = {  # whole numbers, and between which values servers can read them
    "max_tokens": (0, _MOST),
    "max_completion_tokens": (0, _MOST),
    "min_tokens": (0, _MOST),
    "top_k": (-1, _MOST),
    "top_logprobs": (-1, _MOST),
    "prompt_logprobs": (-1, _MOST),
    "seed": (-(1 << 63), (1 << 63) - 1),
}
_NUMBERS = {  # the same for other numbers
    "temperature": (0.0, TEMPERATURES[1]),
    "top_p": (0.0, 1.0),
    "min_p": (0.0, 1.0),
    "frequency_penalty": (-100.0, 100.0),
    "presence_penalty": (-100.0, 100.0),
    "repetition_penalty": (0.0, 100.0),
    "length_penalty": (-100.0, 100.0),
}
# of the largest body, for each value that JSON may have; so many it may always have
_VALUE_BYTES, _FEW_VALUES = 16, 4096
_SIGNS = (b",", b":", b"[", b"{")
# what stands between texts of JSON, and the next text
_PIECE = re.compile(rb'([^"]*+)(?:"(?:[^"\\]++|\\.?)*+"?)?', re.DOTALL)
_MOST_STOPS, _LONGEST_STOP = 16, 1000  # texts at which a rollout ends, and characters of one


@dataclass(frozen=True)
class Best:
    """The options of a best-of-N request: n rollouts, compared by a preset, and the kind if the client gave one.

    If it is `adaptive`, n is the most, and sampling stops once the pick is settled. At temperature 0 n is 1.
    """

    n: int
    preset: PresetName
    kind: Kind | None = None
    fallback: str | None = None
    adaptive: bool = False


@dataclass(frozen=True)
class ApiRequest:
    """One request to the gateway.

    `body` is what the client sent, without the field `radmoe` and with the name of the model alone (no `#rad-16`). `choices` is
    the number of answers the client wants (its `n`), and `size` the number of bytes of the request.
    """

    route: Route
    model: str
    body: dict[str, Any]
    choices: int
    stream: bool
    stream_usage: bool
    best: Best | None
    size: int = 0


def split_model(name: str, default: int) -> tuple[str, int | None]:
    """A model's own name, and how many rollouts its suffix asks for: `lab-qwen#rad-16` asks for 16, `#rad` for the default."""
    match = _SUFFIX.fullmatch(name)
    if match is None:
        return name, None
    return match[1], default if match[2] is None else int(match[2])


def read_request(data: bytes, route: Route, settings: Settings) -> ApiRequest:
    """Parse the body of a request. Raises an ApiError that names the field which cannot be used."""
    _check_values(data, max(settings.largest_body // _VALUE_BYTES, _FEW_VALUES))
    body = _parsed(data)
    model = body.get("model")
    if not isinstance(model, str) or not 0 < len(model) <= _LONGEST_MODEL:
        raise bad_request("model must be the name of a model: /v1/models lists them", "model")
    own, suffix = split_model(model, settings.rollouts)
    choices = _count(body.get("n"), "n", 1, settings.most_rollouts, absent=1)
    stream, options = body.get("stream") or False, body.get("stream_options") or {}
    if not isinstance(stream, bool):
        raise bad_request(f"stream must be true or false, got {_shown(stream)}", "stream")
    if not isinstance(options, dict):
        raise bad_request(f"stream_options must be an object, got {_shown(options)}", "stream_options")
    _check_fields(body)
    arguments = body.get("chat_template_kwargs")
    if arguments is not None and not isinstance(arguments, dict):
        raise bad_request(f"chat_template_kwargs must be an object, got {_shown(arguments)}", "chat_template_kwargs")
    best = _best(body.get("radmoe"), suffix, settings)
    if best is not None and body.get("temperature") == 0:
        if choices > 1:
            raise bad_request(
                f"n is {choices} at temperature 0, where all rollouts are equal: leave n out, or raise the temperature",
                "n",
            )
        best = replace(best, n=1, adaptive=False)
    rest = {name: value for name, value in body.items() if name != "radmoe"} | {"model": own}
    ask = ApiRequest(route, own, rest, choices, stream, options.get("include_usage") is True, best, len(data))
    if best is not None:
        _check_best(ask, best)
    return ask


def _check_values(data: bytes, most: int) -> None:
    """Refuse JSON with more than `most` values before it is parsed: a value of two bytes may take a hundred in memory."""
    if sum(data.count(sign) for sign in _SIGNS) <= most:
        return
    values = 0
    for piece in _PIECE.finditer(data):  # signs within texts count for nothing
        values += max(sum(piece[1].count(sign) for sign in _SIGNS), 1)
        if values > most:
            raise bad_request(
                f"the body has JSON of more than {most:,} values: send texts instead of token ids, or a shorter request",
                code="invalid_json",
            )


def _parsed(data: bytes) -> dict[str, Any]:
    try:
        body = json.loads(data.decode("utf-8-sig"), parse_constant=_no_number)
    except RecursionError:
        raise bad_request("the body is JSON that is nested too deeply", code="invalid_json") from None
    except ValueError as error:  # no JSON, or not in UTF-8
        raise bad_request(f"the body is no JSON: {str(error).splitlines()[0][:100]}", code="invalid_json") from None
    if not isinstance(body, dict):
        raise bad_request(f"the body must be a JSON object, got {_shown(body)}", code="invalid_json")
    return body


def _check_fields(body: dict[str, Any]) -> None:
    """Refuse sampling parameters that no server can use."""
    for name, (low, high) in _WHOLE.items():
        value = body.get(name)
        if value is not None and (type(value) is not int or not low <= value <= high):
            raise bad_request(f"{name} must be a whole number from {low} to {high}, got {_shown(value)}", name)
    for name, (least, most) in _NUMBERS.items():
        value = body.get(name)
        if value is not None and (type(value) not in (int, float) or not least <= value <= most):
            raise bad_request(f"{name} must be a number from {least:g} to {most:g}, got {_shown(value)}", name)
    stop = body.get("stop")
    stops = [stop] if isinstance(stop, str) else [] if stop is None else stop
    if not isinstance(stops, list) or len(stops) > _MOST_STOPS or not all(_is_stop(text) for text in stops):
        raise bad_request(f"stop must be a text, or at most {_MOST_STOPS}, of up to {_LONGEST_STOP} characters", "stop")


def _is_stop(text: Any) -> bool:
    return isinstance(text, str) and len(text) <= _LONGEST_STOP and not any("\ud800" <= c <= "\udfff" for c in text)


def _best(wanted: Any, suffix: int | None, settings: Settings) -> Best | None:
    if wanted is None and suffix is None:
        return None
    fields = {} if wanted is None else wanted
    if not isinstance(fields, Mapping):
        raise bad_request(f'radmoe must be an object such as {{"n": 16}}, got {_shown(fields)}', "radmoe")
    for name in fields:
        if name not in FIELDS:
            raise bad_request(
                f"radmoe has no field {_shown(name)}: use {', '.join(FIELDS)}", "radmoe", code="unknown_field"
            )
    named = _count(suffix, "the number after #rad-", 2, settings.most_rollouts, absent=settings.rollouts, param="model")
    n = _count(fields.get("n"), "radmoe.n", 2, settings.most_rollouts, absent=named)
    if suffix is not None and n != suffix:
        raise bad_request(f"the model's name asks for {suffix} rollouts and radmoe.n for {n}: say one", "radmoe.n")
    try:
        kind = None if fields.get("kind") is None else check_kind(fields["kind"])
        preset = check_preset(settings.preset if fields.get("preset") is None else fields["preset"])
    except (InputError, TypeError) as error:
        param = "radmoe.kind" if "kind" in str(error) else "radmoe.preset"
        raise bad_request(str(error)[:300], param) from None
    fallback = fields.get("fallback")
    if fallback not in (None, *FALLBACKS):
        raise bad_request(
            f"radmoe.fallback must be {' or '.join(FALLBACKS)}, or be left out, got {_shown(fallback)}",
            "radmoe.fallback",
        )
    adaptive = fields.get("adaptive") or False
    if not isinstance(adaptive, bool):
        raise bad_request(f"radmoe.adaptive must be true or false, got {_shown(adaptive)}", "radmoe.adaptive")
    return Best(n, preset, kind, fallback, adaptive)


def _check_best(ask: ApiRequest, best: Best) -> None:
    if ask.choices > best.n:
        raise bad_request(f"n is {ask.choices}, and only {best.n} rollouts are sampled: ask for fewer choices", "n")
    for name in _UNANSWERABLE:
        if ask.body.get(name):
            raise bad_request(f"{name} cannot be combined with best-of-N: leave it out", name)
    prompt = ask.body.get("prompt")
    several = isinstance(prompt, list) and (not prompt or not isinstance(prompt[0], int)) and len(prompt) != 1
    if ask.route == "text" and (several or prompt is None):
        raise bad_request("best-of-N takes one prompt per request: a text, or a list of token ids", "prompt")


def _count(value: Any, name: str, least: int, most: int, *, absent: int, param: str | None = None) -> int:
    if value is None:
        return absent
    if type(value) is not int or not least <= value <= most:
        raise bad_request(f"{name} must be a whole number from {least} to {most}, got {_shown(value)}", param or name)
    return value


def _shown(value: Any) -> str:
    """A client's value for an error message, cut to 60 characters."""
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _no_number(name: str) -> ApiError:
    raise ValueError(f"{name} is no number in JSON")

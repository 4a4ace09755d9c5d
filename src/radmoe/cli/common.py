"""Options and output shared by the commands."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar

import typer
from rich.filesize import decimal

from radmoe.errors import InputError
from radmoe.system.cluster import Crew
from radmoe.system.printing import bar, say

if TYPE_CHECKING:
    from radmoe.pool import Pool
    from radmoe.types import Kind

T = TypeVar("T")
Command = Callable[..., None]
Decorator = Callable[[Command], Command]


def pool_path(text: str) -> Path:
    """A pool's directory, or its place in a store: s3://, gs:// or az://."""
    from radmoe.pool.files import place

    return place(text)


PoolPath = Annotated[
    Path,
    typer.Argument(metavar="POOL", help="A pool's directory or URL.", show_default=False, parser=pool_path),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for a program to read.")]
KindName = Annotated[
    str | None,
    typer.Option(
        "--kind",
        help="math, choice, code, text or agent: which marker opens the answer.",
        show_default="as the pool records, else inferred from the rollouts' markers",
    ),
]
IdsOnly = Annotated[bool, typer.Option("--ids-only", help="Keep expert ids without weights.")]
Raw = Annotated[bool, typer.Option("--raw", help="Prompts as they are, without the chat template.")]
On = Annotated[
    str | None,
    typer.Option("--on", help="A Ray cluster: ray (this machine's), or ray://HOST:6379.", show_default="none"),
]
OutPool = Annotated[
    Path,
    typer.Option("--out", help="The pool's directory or URL, new or to go on with.", parser=pool_path, metavar="PATH"),
]


def option(kind: Any, flag: str, text: str, default: str | None = None, **more: Any) -> Any:
    """An option of a table for `takes`. It is None unless it is given, and `default` says in words what that means."""
    return Annotated[kind | None, typer.Option(flag, help=text, show_default=default or False, **more)]


_ENGINE: dict[str, Any] = {  # the options of `radmoe.engines.EngineOptions`
    "url": option(str, "--url", "The server of vllm-http or sglang-http: http://localhost:8000."),
    "served": option(str, "--served", "The model's name in the server, if it has several."),
    "api_key": option(str, "--api-key", "Sent to the server as a bearer token.", envvar="RADMOE_API_KEY"),
    "timeout": option(float, "--timeout", "Seconds a server may take for one rollout, to the last byte.", "600"),
    "dtype": option(str, "--dtype", "auto (as saved), float32, bfloat16 or float16.", "auto; lab models: float32"),
    "device": option(str, "--device", "cpu, cuda, cuda:1, ...", "cpu"),
    "threads": option(int, "--threads", "CPU cores to use.", "all"),
}
_KEPT: dict[str, Any] = {
    "ids_only": IdsOnly,
    "readouts": option(str, "--readouts", "Keep only the rows these need: delimiter@16,closing@-16."),
    "layers": option(str, "--layers", "Keep only these layers: s0, c2 or 0-3,7."),
    "no_logprobs": option(bool, "--no-logprobs", "Keep no logprobs: no RAD+DC and no preset best later."),
}
_CREW: dict[str, Any] = {  # the options of `radmoe.system.cluster.Crew`
    "on": On,
    "workers": option(int, "--workers", "With --on: how many, each with a model.", "1"),
    "gpus_per_worker": option(float, "--gpus-per-worker", "With --on: GPUs of each.", "0"),
}
_RULE: dict[str, Any] = {  # the options of a rule (`radmoe.selection.rule`), for every command that takes one
    "preset": option(
        str,
        "--preset",
        "paper, paper+dc, strict, best, or best+text (which compares the answers' text too). "
        "Other options replace their part of it.",
        "paper",
    ),
    "readout": option(
        str,
        "--readout",
        "Anchor and window: delimiter@16, delimiter@marker, delimiter@span, closing@-16, boundary@16, "
        "trajectory:now@16, boundary@union (agents; step@union reads steps without a boundary too); or all.",
        "delimiter@16; text: boundary@16; agent: boundary@union",
    ),
    "k": option(int, "--k", "Neighbours in the density.", "10; agent: 4"),
    "kernel": option(str, "--kernel", "weighted or binary Jaccard.", "weighted; agent: binary"),
    "fusion": option(str, "--fusion", "RAD+DC: conf50 or ranksum; none for plain RAD.", "none"),
    "confidence": option(
        str, "--confidence", "What is fused with density: cbw or tail (DeepConf), or likelihood.", "cbw"
    ),
    "compare": option(str, "--compare", "What makes rollouts alike: routing, text, or routing+text.", "routing"),
    "confidence_window": option(
        int,
        "--confidence-window",
        "Tokens of a confidence window (cbw, tail); a shorter rollout uses its plain mean.",
        "2048",
    ),
    "layers": option(str, "--layers", "Layer subset: s0 (a decile), c2, x9, or 0-3,7.", "all"),
    "budget": option(int, "--budget", "Read only this many tokens per rollout."),
    "seed": option(int, "--seed", "For the random control readouts.", "0"),
}


def takes_rule(*parts: str) -> Decorator:
    """Give a command these options of a rule (or all of them) where its signature has the parameter `rule`: it gets a `Rule`."""

    def build(**given: Any) -> Any:
        from radmoe.selection.rule import Rule

        return Rule(**given)

    return takes("rule", build, {name: _RULE[name] for name in parts or _RULE})


def takes_engine(*parts: str) -> Decorator:
    """Give a command these options of an engine (or all of them) where it has the parameter `options`: it gets `EngineOptions`."""

    def build(**given: Any) -> Any:
        from radmoe.engines import EngineOptions

        return EngineOptions(**given)

    return takes("options", build, {name: _ENGINE[name] for name in parts or _ENGINE})


def takes_crew(command: Command) -> Command:
    """Give a command the options of a cluster where its signature has the parameter `crew`: it gets a `Crew`, or None."""

    def build(on: str | None = None, **given: Any) -> Crew | None:
        if on is None and given:
            raise InputError(f"--{next(iter(given)).replace('_', '-')} belongs to --on ray: give both, or neither")
        return None if on is None else Crew(on, **given)

    return takes("crew", build, _CREW)(command)


class Kept(NamedTuple):
    """What a pool keeps of its rollouts: the arguments of `profile_for`, and the arguments of a sampling that keeps as little."""

    profile: dict[str, Any]
    sampling: dict[str, int]


def takes_kept(command: Command) -> Command:
    """Give a command the options of what a pool keeps where its signature has the parameter `kept`: it gets a `Kept`."""

    def build(
        ids_only: bool = False, readouts: str | None = None, layers: str | None = None, no_logprobs: bool = False
    ) -> Kept:
        profile = {"weights": not ids_only, "readouts": names(readouts), "layers": layers}
        return Kept(profile, {"topk_logprobs": 0} if no_logprobs else {})

    return takes("kept", build, _KEPT)(command)


def takes(parameter: str, build: Callable[..., Any], options: dict[str, Any]) -> Decorator:
    """Give a command a table of options in place of a parameter, which is built from those that were given."""

    def decorate(command: Command) -> Command:
        @wraps(command)
        def run(*args: Any, **kwargs: Any) -> None:
            given = {name: value for name in options if (value := kwargs.pop(name, None)) is not None}
            command(*args, **{parameter: build(**given)}, **kwargs)

        shape = inspect.signature(command, eval_str=True)
        named: list[inspect.Parameter] = []
        for one in shape.parameters.values():
            own = [one.replace(name=name, annotation=how, default=None) for name, how in options.items()]
            named += own if one.name == parameter else [one]
        by_keyword = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in named]
        run.__signature__ = shape.replace(parameters=by_keyword)  # type: ignore[attr-defined]
        return run

    return decorate


def settled_kinds(pool: Pool, kind: str | None, readout: str | None, problems: list[str]) -> dict[str, Kind]:
    """Return the kind of each of these problems. If a kind was inferred, a line on stderr says so."""
    from radmoe.selection.kinds import settle_kinds

    kinds, note = settle_kinds(pool, kind, where=str(pool.path), readout=readout, problems=problems)
    if note:
        say(f"radmoe: {note}", err=True)
    return kinds


def names(text: str | None) -> tuple[str, ...] | None:
    """Split an option that lists names with commas; None if it was not given."""
    return None if text is None else tuple(name.strip() for name in text.split(","))


def size(n: float) -> str:
    """Format a number of bytes for people, such as "1.5 MB"."""
    return decimal(int(n))


def limited(limit: int | None, items: list[T]) -> list[T]:
    if limit is not None and limit < 1:
        raise InputError(f"--limit must be at least 1, got {limit}")
    return items[:limit]


def progress(items: Iterable[T], sizes: Sequence[int], what: str, noun: str = "rollouts") -> Iterator[T]:
    """Iterate with progress on stderr, in which each item counts as many as the size at its place."""
    with bar(what, noun, total=sum(sizes)) as update:
        for item, size in zip(items, sizes, strict=True):
            yield item
            update(advance=size)


def sizes_of(pool: Pool, problems: Iterable[str]) -> list[int]:
    """The number of rollouts of each of these problems."""
    return [len(pool.rollout_indices(problem)) for problem in problems]


def write_file(path: Path, text: str) -> None:
    """Write a file that appears whole or not at all."""
    from radmoe.pool.files import write_atomic
    from radmoe.pool.schema import disk_errors

    with disk_errors(path):
        write_atomic(path, text.encode())

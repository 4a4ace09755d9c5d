"""Options and output shared by the commands."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar

import typer

from radmoe.errors import InputError
from radmoe.system.printing import bar, say

if TYPE_CHECKING:
    from radmoe.capture.on_ray import Crew
    from radmoe.pool import Pool
    from radmoe.types import Kind

T = TypeVar("T")


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
Device = Annotated[str, typer.Option("--device", help="cpu, cuda, cuda:1, ...")]
Dtype = Annotated[
    str | None,
    typer.Option(
        "--dtype", help="auto (as saved), float32, bfloat16 or float16.", show_default="auto; lab models: float32"
    ),
]
Threads = Annotated[int | None, typer.Option("--threads", help="CPU cores to use.", show_default="all")]
IdsOnly = Annotated[bool, typer.Option("--ids-only", help="Keep expert ids without weights.")]
_KEPT: dict[str, Any] = {
    "ids_only": IdsOnly,
    "readouts": Annotated[
        str | None, typer.Option("--readouts", help="Keep only the rows these need: delimiter@16,closing@-16.")
    ],
    "layers": Annotated[str | None, typer.Option("--layers", help="Keep only these layers: s0, c2 or 0-3,7.")],
    "no_logprobs": Annotated[
        bool, typer.Option("--no-logprobs", help="Keep no logprobs: no RAD+DC and no preset best later.")
    ],
}
Raw = Annotated[bool, typer.Option("--raw", help="Prompts as they are, without the chat template.")]
On = Annotated[
    str | None,
    typer.Option("--on", help="A Ray cluster: ray (this machine's), or ray://HOST:6379.", show_default="none"),
]
_CREW: dict[str, Any] = {  # the options of `radmoe.capture.on_ray.Crew`
    "on": On,
    "workers": Annotated[
        int | None, typer.Option("--workers", help="With --on: how many, each with a model.", show_default="1")
    ],
    "gpus_per_worker": Annotated[
        float | None, typer.Option("--gpus-per-worker", help="With --on: GPUs of each.", show_default="0")
    ],
}
_RULE: dict[str, Any] = {  # the options of a rule (`radmoe.selection.rule`), for every command that takes one
    "preset": Annotated[
        str | None,
        typer.Option(
            "--preset",
            help="paper, paper+dc, strict, best, or best+text (which compares the answers' text too). "
            "Other options replace their part of it.",
            show_default="paper",
        ),
    ],
    "readout": Annotated[
        str | None,
        typer.Option(
            "--readout",
            help="Anchor and window: delimiter@16, delimiter@marker, delimiter@span, closing@-16, boundary@16, "
            "trajectory:now@16, boundary@union (agents; step@union reads steps without a boundary too); or all.",
            show_default="delimiter@16; text: boundary@16; agent: boundary@union",
        ),
    ],
    "k": Annotated[int | None, typer.Option("--k", help="Neighbours in the density.", show_default="10; agent: 4")],
    "kernel": Annotated[
        str | None, typer.Option("--kernel", help="weighted or binary Jaccard.", show_default="weighted; agent: binary")
    ],
    "fusion": Annotated[
        str | None,
        typer.Option("--fusion", help="RAD+DC: conf50 or ranksum; none for plain RAD.", show_default="none"),
    ],
    "confidence": Annotated[
        str | None,
        typer.Option(
            "--confidence",
            help="What is fused with density: cbw or tail (DeepConf), or likelihood.",
            show_default="cbw",
        ),
    ],
    "compare": Annotated[
        str | None,
        typer.Option(
            "--compare", help="What makes rollouts alike: routing, text, or routing+text.", show_default="routing"
        ),
    ],
    "confidence_window": Annotated[
        int | None,
        typer.Option(
            "--confidence-window",
            help="Tokens of a confidence window (cbw, tail); a shorter rollout uses its plain mean.",
            show_default="2048",
        ),
    ],
    "layers": Annotated[
        str | None, typer.Option("--layers", help="Layer subset: s0 (a decile), c2, x9, or 0-3,7.", show_default="all")
    ],
    "budget": Annotated[int | None, typer.Option("--budget", help="Read only this many tokens per rollout.")],
    "seed": Annotated[int | None, typer.Option("--seed", help="For the random control readouts.", show_default="0")],
}


def takes_rule(*parts: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command these options of a rule where its signature has the parameter `rule`: it gets a `Rule` there."""

    def build(**given: Any) -> Any:
        from radmoe.selection.rule import Rule

        return Rule().but(**given)

    return _takes("rule", {name: _RULE[name] for name in parts}, build)


def takes_crew(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of a cluster where its signature has the parameter `crew`: it gets a `Crew`, or None."""

    def build(on: str | None, **given: Any) -> Crew | None:
        from radmoe.capture.on_ray import Crew

        known = {name: value for name, value in given.items() if value is not None}
        if on is None and known:
            raise InputError(f"--{next(iter(known)).replace('_', '-')} belongs to --on ray: give both, or neither")
        return None if on is None else Crew(on, **known)

    return _takes("crew", _CREW, build)(command)


class Kept(NamedTuple):
    """What a pool keeps of its rollouts: the arguments of `profile_for`, and the arguments of a sampling that keeps as little."""

    profile: dict[str, Any]
    sampling: dict[str, int]


def takes_kept(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of what a pool keeps where its signature has the parameter `kept`: it gets a `Kept`."""

    def build(ids_only: bool | None, readouts: str | None, layers: str | None, no_logprobs: bool | None) -> Kept:
        profile = {"weights": not ids_only, "readouts": names(readouts), "layers": layers}
        return Kept(profile, {"topk_logprobs": 0} if no_logprobs else {})

    return _takes("kept", _KEPT, build)(command)


def _takes(
    parameter: str, options: dict[str, Any], build: Callable[..., Any]
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command options in place of a parameter, which is built from them."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def run(*args: Any, **kwargs: Any) -> None:
            given = {name: kwargs.pop(name, None) for name in options}  # commands call each other with less
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


def limited(limit: int | None, items: list[T]) -> list[T]:
    if limit is not None and limit < 1:
        raise InputError(f"--limit must be at least 1, got {limit}")
    return items[:limit]


def progress(items: Iterable[T], total: int, what: str, noun: str = "problems") -> Iterator[T]:
    """Iterate over problems with progress on stderr."""
    with bar(what, noun, total=total) as update:
        for item in items:
            yield item
            update(advance=1)


def size(n: float) -> str:
    """Format a number of bytes for people, such as "1.5 MB"."""
    for unit in ("B", "kB", "MB", "GB"):
        if n < 1000:
            return f"{n:.0f} {unit}" if unit == "B" else f"{n:.1f} {unit}"
        n /= 1000
    return f"{n:.1f} TB"

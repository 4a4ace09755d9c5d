"""`radmoe doctor` checks that the routing which an engine returns is that of its tokens."""

from __future__ import annotations

from dataclasses import asdict, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from radmoe.cli.common import Json, takes_engine
from radmoe.engines import engine_names
from radmoe.system.printing import console, say, say_json, styled

if TYPE_CHECKING:
    from radmoe.engines.base import Engine
    from radmoe.engines.doctor import Finding

EXAMPLES = (
    "radmoe doctor transformers --model lab-qwen",
    "radmoe doctor vllm-http --url http://localhost:8000 --model ./checkpoint",
    "radmoe doctor sglang-http --url http://localhost:30000 --model ./checkpoint",
)
_COLOURS = {"ok": "green", "failed": "bold red", "warning": "yellow", "skipped": "dim"}
_SMALL = 2 << 30  # bytes of weights that a check-up loads without being asked


@takes_engine("url", "served", "api_key")
def command(
    engine: Annotated[str, typer.Argument(metavar="ENGINE", help=", ".join(engine_names()), show_default=False)],
    options: Any,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            help="The model, or the directory of the one that is served: config.json and tokenizer.json suffice.",
            show_default="the server's own, if it is a directory here",
        ),
    ] = None,
    reference: Annotated[
        str | None,
        typer.Option(
            "--reference",
            help="A checkpoint to replay the rollouts with; none leaves it out.",
            show_default="--model, if its weights are under 2 GB",
        ),
    ] = None,
    timeout: Annotated[float, typer.Option("--timeout", help="Seconds an answer may take, to the last byte.")] = 120.0,
    as_json: Json = False,
) -> None:
    """Check that a live engine returns the routing of its tokens.

    Seven short rollouts show whether rows, layers, experts, weights, alignment, repeatability and caches are right. Prints what is wrong and the flag to change; the exit code is 1 if something is.
    """
    from radmoe.engines import engine_class, open_engine
    from radmoe.engines.doctor import examine

    options = replace(options, timeout=timeout, probe=False, retries=2)
    engine_class(engine)  # an unknown one is a wrong call, not a finding

    findings = []
    opened = partial(open_engine, engine, model, options)
    for finding in examine(opened, engine, open_reference=lambda made: _reference(made, reference)):
        findings.append(finding)
        if not as_json:
            _show(finding)
    wrong = sum(finding.status == "failed" for finding in findings)
    if as_json:
        say_json({"engine": engine, "ok": not wrong, "findings": [asdict(f) for f in findings]})
    else:
        say("")
        say(f"{wrong} of {len(findings)} checks failed" if wrong else "nothing is wrong with this engine")
    if wrong:
        raise typer.Exit(1)


def _show(finding: Finding) -> None:
    """Print a finding in one line as soon as it is known, and below it what to do."""
    from rich.padding import Padding

    out, status = console(), (f"{finding.status:<8}", _COLOURS[finding.status])
    out.print(styled(status, f"  {finding.check:<15} {finding.seen}"), soft_wrap=True)
    if finding.todo:
        out.print(Padding(styled(("->", "bold"), f" {finding.todo}"), (0, 0, 0, 26)))


def _reference(engine: Engine, named: str | None) -> Engine | None:
    """The engine to replay with: that of the named checkpoint, or of the engine's own checkpoint if it is small, or None."""
    from radmoe.engines import EngineOptions, open_engine

    if named == "none":
        return None
    if named is not None:
        return open_engine("transformers", named)
    path = engine.checkpoint
    if path is None or not 0 < sum(file.stat().st_size for file in path.glob("*.safetensors")) < _SMALL:
        return None
    # in float32, since no engine's rounding is as far from it as the roundings of two engines are apart
    return open_engine("transformers", str(path), EngineOptions(dtype="float32"))

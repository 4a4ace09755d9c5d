"""The `radmoe` command: thin commands over the library, loaded when called."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

import typer
from typer.core import TyperGroup

from radmoe.cli import (
    advise,
    agent,
    audit,
    bench,
    calibrate,
    capture,
    demo,
    doctor,
    evaluate,
    grade,
    inspect,
    lab,
    merge,
    report,
    rivals,
    select,
    serve,
    study,
    verify,
)
from radmoe.errors import RadmoeError
from radmoe.system.printing import prepare_process, say, say_block, visible

_RESUMED = (
    "agent import",
    "agent run",
    "capture",
    "demo",
    "lab pools",
    "study",
)  # the same command goes on where it was; what others write appears whole or not at all


@contextmanager
def _visible_usage() -> Iterator[None]:
    """A wrong call is typer's to show, and its message repeats what was typed."""
    try:
        yield
    except Exception as error:
        if hasattr(error, "format_message"):
            message = visible(error.format_message())
            error.format_message = lambda: message
        raise


class _Commands(TyperGroup):
    """Typer's group of commands, with visible messages. Its own options are parsed in `make_context`, a command's in
    `invoke`."""

    def make_context(self, *arguments: Any, **options: Any) -> Any:
        with _visible_usage():
            return super().make_context(*arguments, **options)

    def invoke(self, ctx: Any) -> Any:
        with _visible_usage():
            return super().invoke(ctx)


app = typer.Typer(
    name="radmoe",
    cls=_Commands,
    help="Best-of-N for open MoE models by routing agreement (RAD): no answer is parsed, compared or voted on.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)


def _interruptible(name: str, command: Callable[..., None]) -> Callable[..., None]:
    """Ctrl-C is one line on stderr and exit code 130, and a closed pipe 141; typer alone would say nothing, and exit 1."""

    @wraps(command)
    def run(*args: object, **kwargs: object) -> None:
        try:
            command(*args, **kwargs)
            sys.stdout.flush()
        except BrokenPipeError:  # the reader has gone (`| head`): end as other programs do, without a word
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise SystemExit(128 + signal.SIGPIPE) from None
        except KeyboardInterrupt as interrupt:
            left = "what is finished is kept: run the same command to go on"
            if name not in _RESUMED:
                left = f"{name} has left nothing half written: run the same command again"
            say(f"radmoe: interrupted: {str(interrupt) or left}", err=True)
            raise typer.Exit(130) from None

    return run


def _epilog(examples: Iterable[str]) -> str:
    return "\n\n".join(("Examples:", *examples))  # a blank line is a line break in typer's epilog


for module in (
    demo,
    capture,
    inspect,
    verify,
    merge,
    select,
    advise,
    grade,
    calibrate,
    evaluate,
    rivals,
    study,
    report,
    audit,
    doctor,
    bench,
    serve,
):
    name = module.__name__.rpartition(".")[2]
    app.command(name, epilog=_epilog(module.EXAMPLES))(_interruptible(name, module.command))

for group in (lab, agent):
    title = group.__name__.rpartition(".")[2]
    own = typer.Typer(cls=_Commands, help=group.HELP, epilog=_epilog(group.EXAMPLES), no_args_is_help=True)
    for name, command in group.COMMANDS.items():
        own.command(name, epilog=_epilog(group.EXAMPLES))(_interruptible(f"{title} {name}", command))
    app.add_typer(own, name=title)


@app.callback(invoke_without_command=True)
def _options(version: bool = typer.Option(False, "--version", help="Print the version and exit.")) -> None:
    if version:
        from radmoe import __version__

        say(f"radmoe {__version__}")
        raise typer.Exit


def main() -> None:
    """Run the command line: a known error is one line on stderr and exit code 2, and so is a file that the system
    refuses. The traceback of any other is visible text too."""
    prepare_process()
    try:
        app(prog_name="radmoe")
    except RadmoeError as e:
        say(f"radmoe: error: {e}", err=True)
        raise SystemExit(2) from None
    except Exception as error:
        if isinstance(error, OSError) and error.filename is not None:
            say(f"radmoe: error: {error.filename}: {error.strerror}: check the path and who may use it", err=True)
            raise SystemExit(2) from None
        say_block(traceback.format_exc().removesuffix("\n"), err=True)
        raise SystemExit(1) from None

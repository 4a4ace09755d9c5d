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
    calibrate,
    capture,
    doctor,
    evaluate,
    grade,
    inspect,
    merge,
    report,
    rivals,
    select,
    serve,
    verify,
)
from radmoe.errors import InputError, RadmoeError
from radmoe.system.plugins import added, attribute
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


def _add(name: str, command: Callable[..., None], examples: Iterable[str]) -> None:
    """Add a command, "name" or "group name"."""
    group, _, own = name.rpartition(" ")
    _NAMES.add(name)
    (_GROUPS[group] if group else app).command(own, epilog=_epilog(examples))(_interruptible(name, command))


def _add_group(name: str, description: str, examples: Iterable[str]) -> None:
    _GROUPS[name] = typer.Typer(cls=_Commands, help=description, epilog=_epilog(examples), no_args_is_help=True)
    app.add_typer(_GROUPS[name], name=name)


def _add_plugins() -> None:
    """Add the commands of installed plugins, and for those of a companion that is not installed one that says so."""
    missing = dict(_COMPANIONS)
    for name, path in added("commands").items():
        if name in _NAMES or name in _GROUPS:
            continue  # radmoe's own stays
        group = name.rpartition(" ")[0]
        try:
            command = attribute(path)
            module = sys.modules[command.__module__]
            if group and group not in _GROUPS:
                _add_group(group, module.HELP, module.EXAMPLES)
            _add(name, command, module.EXAMPLES)
        except Exception as error:  # somebody else's module may raise anything while it is imported
            say(f"radmoe: warning: the command {name!r} of a plugin cannot be loaded: {error}", err=True)
            continue
        missing.pop(name, None)
        missing.pop(group, None)
    for name, companion in missing.items():
        parent = _GROUPS[name.rpartition(" ")[0]] if " " in name else app
        settings = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}
        parent.command(name.rpartition(" ")[2], hidden=True, context_settings=settings)(_missing(name, companion))


def _missing(name: str, companion: str) -> Callable[[typer.Context], None]:
    def command(ctx: typer.Context) -> None:
        raise InputError(f"radmoe {name} is part of {companion}, which is not installed: pip install {companion}")

    return command


_NAMES: set[str] = set()
_GROUPS: dict[str, typer.Typer] = {}
_COMPANIONS = {  # commands that stand in the documentation, and the package that brings each
    "demo": "radmoe-lab",
    "bench": "radmoe-lab",
    "lab": "radmoe-lab",
    "agent demo": "radmoe-lab",
    "agent evaluate": "radmoe-studies",
    "study": "radmoe-studies",
    "audit": "radmoe-studies",
}

for module in (
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
    report,
    doctor,
    serve,
):
    _add(module.__name__.rpartition(".")[2], module.command, module.EXAMPLES)
_add_group("agent", agent.HELP, agent.EXAMPLES)
for name, command in agent.COMMANDS.items():
    _add(f"agent {name}", command, agent.EXAMPLES)
_add_plugins()


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

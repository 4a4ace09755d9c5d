"""The `radmoe` command line. Each command is a thin layer over the library and imports it when it is called."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from inspect import cleandoc
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from radmoe.cli import (
    advise,
    capture,
    delete,
    doctor,
    evaluate,
    grade,
    inspect,
    merge,
    replay,
    report,
    select,
    serve,
    verify,
)
from radmoe.errors import InputError, RadmoeError
from radmoe.system.plugins import added, attribute, warn
from radmoe.system.printing import prepare_process, say, say_block, visible

_RESUMED = (
    "agent import",
    "agent run",
    "capture",
    "demo",
    "import",
    "lab pools",
    "replay",
    "replicate",
    "study",
)  # the same command goes on where it was; what others write appears whole or not at all


@contextmanager
def _visible_usage() -> Iterator[None]:
    """Make the characters of a usage error visible: typer shows it, and its message repeats what was typed."""
    try:
        yield
    except Exception as error:
        if hasattr(error, "format_message"):
            message = visible(error.format_message())
            error.format_message = lambda: message
        raise


class _Help:
    """A mixin for help: examples stay unbroken, so that they can be pasted, and flags show no type."""

    epilog: str | None
    get_params: Callable[[Any], list[Any]]

    def format_help(self, ctx: Any, formatter: Any) -> None:
        examples, self.epilog = self.epilog, None
        for option in self.get_params(ctx):
            if getattr(option, "is_flag", False):
                option.metavar = ""  # typer would write <bool>, as if a flag took a value
        super().format_help(ctx, formatter)  # type: ignore[misc]
        self.epilog = examples
        if examples:
            say_block(f" Examples:\n\n{examples}")


class _Command(_Help, TyperCommand):
    """Typer's command, with examples that can be pasted."""


class _Commands(_Help, TyperGroup):
    """Typer's group of commands, with messages in which every character is visible.

    Typer parses the group's own options in `make_context` and a command's options in `invoke`.
    """

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
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)


def _interruptible(name: str, command: Callable[..., None]) -> Callable[..., None]:
    """Wrap a command so that Ctrl-C prints one line on stderr and exits with 130, and a closed pipe exits with 141.

    Typer alone would print nothing and exit with 1.
    """

    @wraps(command)
    def run(*args: object, **kwargs: object) -> None:
        try:
            command(*args, **kwargs)
            sys.stdout.flush()
        except BrokenPipeError:  # the reader has gone (`| head`): end silently, as other programs do
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise SystemExit(128 + signal.SIGPIPE) from None
        except KeyboardInterrupt as interrupt:
            left = "what is finished is kept: run the same command to go on"
            if name not in _RESUMED:
                left = f"{name} has left nothing half written: run the same command again"
            say(f"radmoe: interrupted: {str(interrupt) or left}", err=True)
            raise typer.Exit(130) from None

    return run


def _help(docstring: str | None) -> str:
    """Return a docstring with each paragraph in one line, so that the terminal wraps it."""
    paragraphs = cleandoc(docstring or "").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def _add(name: str, command: Callable[..., None], module: Any) -> None:
    """Add a command, "name" or "group name", with the examples of its module, under the module's heading in the help."""
    group, _, own = name.rpartition(" ")
    _NAMES.add(name)
    add = (_GROUPS[group] if group else app).command
    options: dict[str, Any] = {"cls": _Command, "help": _help(command.__doc__), "epilog": _epilog(module)}
    add(own, rich_help_panel=None if group else _heading(module), **options)(_interruptible(name, command))


def _add_group(name: str, module: Any) -> None:
    """Add a group of commands, described by its module's HELP."""
    _GROUPS[name] = typer.Typer(cls=_Commands, help=module.HELP, epilog=_epilog(module), no_args_is_help=True)
    app.add_typer(_GROUPS[name], name=name, rich_help_panel=_heading(module))


def _epilog(module: Any) -> str:
    return "".join(f" {example}\n" for example in module.EXAMPLES)


def _heading(module: Any) -> str:
    """Return the heading under which `radmoe --help` lists a module's commands. A plugin's module sets it as HEADING."""
    own = next((heading for heading, modules in _HEADINGS.items() if module in modules), "Plugins")
    return str(getattr(module, "HEADING", own))


def _add_plugins() -> None:
    """Add the commands of installed plugins. A companion's command that is not installed becomes one that says so."""
    missing = dict(_COMPANIONS)
    for name, path in sorted(added("commands").items(), key=lambda item: not _of_companion(*item)):
        if name in _NAMES or name in _GROUPS:
            continue  # radmoe's own stays
        group = name.rpartition(" ")[0]
        if group in missing and not _of_companion(name, path):
            continue  # the companion whose group it joins is not installed
        try:
            command = attribute(path)
            module = sys.modules[command.__module__]
            if group and group not in _GROUPS:
                _add_group(group, module)
            _add(name, command, module)
        except Exception as error:  # somebody else's module may raise anything while it is imported
            warn(f"the command {name!r} of a plugin", error)
            continue
        missing.pop(name, None)
        missing.pop(group, None)
    for name, companion in missing.items():
        if name.rpartition(" ")[0] in missing:
            continue  # its whole group is missing, and says so
        parent = _GROUPS[name.rpartition(" ")[0]] if " " in name else app
        settings = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}
        parent.command(name.rpartition(" ")[2], hidden=True, context_settings=settings)(_missing(name, companion))


def _of_companion(name: str, path: str) -> bool:
    """Whether a command of a group is from the companion that the group belongs to."""
    return _COMPANIONS.get(name.rpartition(" ")[0]) == path.partition(".")[0].replace("_", "-")


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
    "agent": "radmoe-agent",
    "agent demo": "radmoe-lab",
    "agent evaluate": "radmoe-studies",
    "import": "radmoe-integrations",
    "export": "radmoe-integrations",
    "replicate": "radmoe-studies",
    "study": "radmoe-studies",
    "audit": "radmoe-studies",
    "calibrate": "radmoe-studies",
}

_HEADINGS: dict[str, tuple[Any, ...]] = {  # of `radmoe --help`, each with its commands in their order
    "Select": (select, advise),
    "Capture": (capture, replay, inspect, verify, merge, delete, doctor),
    "Judge": (grade, evaluate, report),
    "Serve": (serve,),
}

for module in (module for modules in _HEADINGS.values() for module in modules):
    name = module.__name__.rpartition(".")[2]
    _add(name, module.command, module)
_add_plugins()


@app.callback(invoke_without_command=True)
def _options(version: bool = typer.Option(False, "--version", help="Print the version and exit.")) -> None:
    if version:
        from radmoe import __version__

        say(f"radmoe {__version__}")
        raise typer.Exit


def main() -> None:
    """Run the command line.

    A known error, or a file that the system refuses, is one line on stderr and exit code 2. Any other error prints its
    traceback, with all characters made visible, and exits with 1.
    """
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

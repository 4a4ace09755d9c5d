"""What other installed packages add to radmoe: commands, tasks, models, engines, methods, readouts and clusters.

A package describes what it adds in a `Plugin` and names that object under the entry-point group "radmoe":

    [project.entry-points.radmoe]
    mine = "my_package.plugin:PLUGIN"

Everything in a `Plugin` is a dotted path, which is imported when it is first used, so that the module of the plugin costs nothing to
load. radmoe's companions add what they have in this way, and so does any other package.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from radmoe.errors import InputError
from radmoe.system.printing import say

GROUP = "radmoe"
_NAME = re.compile(r"[\w./+-]+(?: [\w./+-]+)?", re.ASCII)  # a command may have a group before its name


@dataclass(frozen=True)
class PluginModel:
    """A model that a package ships. `directory` is the path of a function from the model's name to its checkpoint's directory.

    `engine` is the name of the engine that opens it where transformers is asked for, `dtype` what it computes in unless told
    otherwise, and `styles` the styles that it knows (empty: any).
    """

    directory: str
    engine: str = "transformers"
    dtype: str = "auto"
    styles: tuple[str, ...] = ()


@dataclass(frozen=True)
class Plugin:
    """What a package adds, by dotted paths.

    commands      "name", or "group name", of a command of `radmoe`: the path of its function, in a module with EXAMPLES, and
                  with HEADING if it shall not stand under "Plugins" in the help
    engines       name for `--engine`: the path of a subclass of `radmoe.engines.base.Engine`
    tasks         name for `--task`: the path of a `radmoe.problems.Dataset`
    models        name for `--model`: a `Model`
    methods       paths of modules that register methods of `radmoe evaluate` when they are imported
    readouts      paths of modules that add families to `radmoe.selection.readout.READERS` when they are imported
    problems      paths of functions from problem ids to the problems among them that they know, with their gold answers
    trajectories  ending of a file for `radmoe agent import`: the path of a function that reads it
    clusters      scheme of an address for `--on`: the path of a `radmoe.system.cluster.Cluster`
    """

    commands: Mapping[str, str] = field(default_factory=dict)
    engines: Mapping[str, str] = field(default_factory=dict)
    tasks: Mapping[str, str] = field(default_factory=dict)
    models: Mapping[str, PluginModel] = field(default_factory=dict)
    methods: Sequence[str] = ()
    readouts: Sequence[str] = ()
    problems: Sequence[str] = ()
    trajectories: Mapping[str, str] = field(default_factory=dict)
    clusters: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if name in ("methods", "readouts", "problems"):
                if isinstance(value, str) or not isinstance(value, Sequence) or not _are(value, str):
                    raise TypeError(f"{name} of a Plugin are paths in a list, got {value!r}")
                continue
            if not isinstance(value, Mapping) or not _are(value.values(), PluginModel if name == "models" else str):
                raise TypeError(
                    f"{name} of a Plugin are {'Models' if name == 'models' else 'paths'} by name, got {value!r}"
                )
            for key in value:
                if not isinstance(key, str) or not _NAME.fullmatch(key):
                    raise TypeError(f"{name} of a Plugin have names of letters, digits, -, _, ., + and /, got {key!r}")


def _are(values: Iterable[object], wanted: type) -> bool:
    return all(isinstance(value, wanted) for value in values)


@cache
def plugins() -> tuple[Plugin, ...]:
    """The plugins of all installed packages, by name. One that cannot be loaded is a warning on stderr, and is left out."""
    found = []
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name):
        try:
            plugin = entry.load()
            if not isinstance(plugin, Plugin):
                raise TypeError(f"{entry.value} is a {type(plugin).__name__}, not a radmoe.Plugin")
        except Exception as error:  # somebody else's module may raise anything while it is imported
            warn(f"the plugin {entry.name!r} of {_package(entry)}", error)
            continue
        found.append(plugin)
    return tuple(found)


def added(what: str) -> dict[str, Any]:
    """Return what plugins add of one kind, such as "engines", by name. If two plugins add the same name, the first
    one's counts.
    """
    merged: dict[str, Any] = {}
    for plugin in plugins():
        for name, value in getattr(plugin, what).items():
            merged.setdefault(name, value)
    return merged


def functions(what: str) -> list[Any]:
    """Import and return the functions that plugins list under `what`, such as "problems"."""
    return [attribute(path) for plugin in plugins() for path in getattr(plugin, what)]


@cache
def import_modules(what: str) -> None:
    """Import the modules that plugins list under `what`, once, so that they register what they add."""
    for path in (path for plugin in plugins() for path in getattr(plugin, what)):
        try:
            import_module(path)
        except Exception as error:
            warn(f"the plugin module {path}", error)


def attribute(path: str) -> Any:
    """Import the object at a dotted path, `package.module.NAME`. Raises an InputError if there is none."""
    module, _, name = path.rpartition(".")
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise InputError(f"{path} cannot be imported ({error}): check the package that names it") from None


def warn(what: str, error: Exception) -> None:
    """Say in one line on stderr that a part of a plugin cannot be loaded, and why."""
    reason = (str(error).strip() or type(error).__name__).splitlines()[0]
    say(f"radmoe: warning: {what} cannot be loaded ({reason}): what it adds is missing", err=True)


def _package(entry: Any) -> str:
    return "an unnamed package" if entry.dist is None else str(entry.dist.name)

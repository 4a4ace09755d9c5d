"""The command line of helper processes: a bare interpreter that can import the modules of this room only.

The package around this room has more to import than a bare interpreter finds, so its modules are not loaded.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOM = Path(__file__).parent
_BOOT = """
import importlib, sys, types
package = types.ModuleType("radmoe.sandbox")
package.__path__ = sys.argv[1:3]
sys.modules.update({"radmoe": types.ModuleType("radmoe"), "radmoe.sandbox": package})
importlib.import_module("radmoe.sandbox." + sys.argv[3]).main(*sys.argv[4:])
"""


def command_line(module: str, *arguments: str, beside: Path = ROOM) -> list[str]:
    """The command that calls `main` of a module in such an interpreter; the module lies in this room or in `beside`."""
    return [sys.executable, "-I", "-S", "-B", "-c", _BOOT, str(ROOM), str(beside), module, *arguments]

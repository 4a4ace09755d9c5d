"""The command line of helper processes: a bare interpreter that can import this package's sandbox modules only.

The package around this room has more to import than a bare interpreter finds, so its modules are not loaded.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOM = Path(__file__).parent
_BOOT = """
import importlib, sys, types
package = types.ModuleType("radmoe.sandbox")
package.__path__ = [sys.argv[1]]
sys.modules.update({"radmoe": types.ModuleType("radmoe"), "radmoe.sandbox": package})
importlib.import_module("radmoe.sandbox." + sys.argv[2]).main(*sys.argv[3:])
"""


def command_line(module: str, *arguments: str) -> list[str]:
    """The command that calls `main` of one of the sandbox modules in such an interpreter."""
    return [sys.executable, "-I", "-S", "-B", "-c", _BOOT, str(ROOM), module, *arguments]

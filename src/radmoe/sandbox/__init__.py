"""Confinement for programs that nobody has read. This room runs them and says how they ended; it judges nothing.

run.py    Sandbox, which calls a program's function or feeds it a text; Outcome, how that ended; run_many, several at once
jail.py   the process inside: it confines itself for good, then runs one program after another

`spell` is how returned values are written down: plain values that are equal are spelled alike, and nothing else is. What
an outcome is worth is decided by whoever asked, where the program cannot reach (`radmoe.grading.programs`).
"""

from radmoe.sandbox.jail import spell
from radmoe.sandbox.run import MEMORY, TIMEOUT_S, Outcome, Sandbox, run_many

__all__ = ["MEMORY", "TIMEOUT_S", "Outcome", "Sandbox", "run_many", "spell"]

"""Runs untrusted programs in confinement and reports how they ended. It does not judge their output.

run.py       Sandbox, which calls a program's function or feeds it a text; Outcome, how that ended; run_many, several at once
library.py   the modules that programs are promised
jail.py      the helper process: it is confined once, then runs one program after another
worker.py    the process of one program
root.py      what can be seen from inside: namespaces with a root of their own, or rules for Landlock
filters.py   which system calls are let through
kernel.py    system calls that Python does not offer
boot.py      how a helper process is started
spelling.py  how returned values are written down

`spell` is how returned values are written down: plain values that are equal are spelled alike, and nothing else is. What
an outcome is worth is decided by whoever asked, where the program cannot reach (`radmoe.grading.programs`).

An agent's commands run in the same confinement by `radmoe_agent.session` (radmoe-agent), with a work tree of their own.
"""

from radmoe.sandbox.run import MEMORY, TIMEOUT_S, Mechanism, Outcome, Sandbox, run_many
from radmoe.sandbox.spelling import spell

__all__ = ["MEMORY", "TIMEOUT_S", "Mechanism", "Outcome", "Sandbox", "run_many", "spell"]

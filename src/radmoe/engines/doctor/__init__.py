"""Checks whether the routing that an engine returns is the routing of its tokens, with a few short rollouts.

run.py       the requests of a check-up, and its findings in order
checks.py    what each check looks at (NumPy)
"""

from radmoe.engines.doctor.checks import Finding
from radmoe.engines.doctor.run import examine

__all__ = ["Finding", "examine"]

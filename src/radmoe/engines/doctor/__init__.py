"""Checks whether the routing that an engine hands over is the routing of its tokens. One short run tells.

run.py       the requests of a check-up, and its findings in order
checks.py    what each check looks at (NumPy)
"""

from radmoe.engines.doctor.checks import Finding
from radmoe.engines.doctor.run import examine

__all__ = ["Finding", "examine"]

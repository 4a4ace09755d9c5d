"""Is the routing an engine hands over the routing of its tokens? One short run tells.

run.py       the requests a check-up makes, and its findings in order
patient.py   one rollout of any engine as it came, unchecked
checks.py    what each check looks at (NumPy)
remedies.py  the flag to change, by engine
"""

from radmoe.engines.doctor.checks import Finding
from radmoe.engines.doctor.run import examine

__all__ = ["Finding", "examine"]

"""Commands that this package adds to `radmoe`."""

import sys

from radmoe.system.printing import say


def say_next_steps(*calls: str) -> None:
    """Say which commands one may run next. `make` calls this program by its path, and so must whoever follows."""
    own = sys.argv[0]
    program = own if own.endswith("bin/radmoe") and not own.startswith("/") else "radmoe"
    say("Now try:")
    for call in calls:
        say(f"  {program} {call}")

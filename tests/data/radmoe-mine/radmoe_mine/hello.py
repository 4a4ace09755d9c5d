"""`radmoe hello`."""

from typing import Annotated

import typer

from radmoe.system.printing import say

EXAMPLES = ("radmoe hello", "radmoe hello --name you")


def command(name: Annotated[str, typer.Option(help="Whom to greet.")] = "world") -> None:
    """Say hello."""
    say(f"hello, {name}")

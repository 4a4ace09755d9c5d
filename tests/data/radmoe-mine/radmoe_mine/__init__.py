"""A package of somebody else's that adds one of everything to radmoe."""

from radmoe import Plugin

PLUGIN = Plugin(
    commands={"hello": "radmoe_mine.hello.command"},
    engines={"dice": "radmoe_mine.dice.DiceEngine"},
    tasks={"one-sum": "radmoe_mine.sums.ONE_SUM"},
    methods=("radmoe_mine.methods",),
    readouts=("radmoe_mine.readouts",),
)

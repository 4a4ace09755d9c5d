"""A family of readouts: the last W tokens of a rollout, wherever its answer stands."""

from radmoe.selection.readout import READERS, Place, Readout, Window
from radmoe.types import Anchor


def read_tail(readout: Readout, place: Place) -> Window:
    start = max(0, place.end - int(readout.width))
    return Anchor(start, place.end - start, "mine"), [(start, place.end)]


READERS["mine"] = read_tail

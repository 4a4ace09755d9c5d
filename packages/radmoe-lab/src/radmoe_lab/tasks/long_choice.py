"""The task `long-choice`: six letters in a row, clues about their order, and which of four letters stands at a place.

It has no arithmetic. A rollout tries one letter after another at each place, in an order of its own, names the clue that forbids a letter,
goes back where none fits, and sometimes starts again, so that rollouts of one problem differ in length by a factor of ten. The
options are always the same, because models this small do not learn to look one up.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from random import Random
from typing import NamedTuple

from radmoe.problems import Problem
from radmoe_lab.tasks.base import Example
from radmoe_lab.tasks.draw import between, chance, favour, is_test, pick, shuffled
from radmoe_lab.tasks.maths import BOXES, LETTERS

ITEMS = "mnopqr"
OPTIONS = "\n".join(f"{letter}) {item}" for letter, item in zip(LETTERS, ITEMS, strict=False))
_ROWS = tuple("".join(row) for row in permutations(ITEMS))
_RESTART = 0.12  # how often a search is given up and begun again

_OPENERS = (
    "The letters {} stand in a row, each once.",
    "Put the letters {} in order, one at each place.",
    "Six letters are in a row: {}.",
)
_ASKS = (
    "Which letter is at place {}? Answer with A, B, C or D in \\boxed{{}}.",
    "Give the option that is at place {} in \\boxed{{}}.",
    "What stands at place {}? Put the option in \\boxed{{}}.",
)
_CONCLUSIONS = ("Place {place} has {item}, so {letter}.", "At place {place} is {item}. So {letter}.")
_TAILS = (
    ". So option {letter} is right, as {item} is at place {place}.",
    ", since place {place} has {item}.",
    ". This is the option that has the letter at place {place}.",
)
_BACKS = ("Nothing fits after {}. Back.", "No letter fits after {}. Back.")
_AGAIN = ("Let me start again.", "This takes long. From the start again.")


class Clue(NamedTuple):
    """What is known about two letters, or about a letter and a place."""

    kind: str
    a: str
    b: str

    def __str__(self) -> str:
        return _KINDS[self.kind][0].format(a=self.a, b=self.b)

    def allows(self, row: str) -> bool:
        """Whether the first letters of a row can be part of an order in which the clue holds."""
        return _KINDS[self.kind][1](row, self.a, self.b)


def _before(row: str, a: str, b: str) -> bool:
    return b not in row or a in row[: row.index(b)]


def _next(row: str, a: str, b: str) -> bool:
    if a in row and b in row:
        return abs(row.index(a) - row.index(b)) == 1
    return not (a in row[:-1] or b in row[:-1])


def _apart(row: str, a: str, b: str) -> bool:
    return a not in row or b not in row or abs(row.index(a) - row.index(b)) > 1


def _not_at(row: str, a: str, place: str) -> bool:
    return len(row) < int(place) or row[int(place) - 1] != a


_KINDS: dict[str, tuple[str, Callable[[str, str, str], bool]]] = {
    "before": ("{a} is before {b}", _before),
    "next": ("{a} is next to {b}", _next),
    "apart": ("{a} is not next to {b}", _apart),
    "not at": ("{a} is not at place {b}", _not_at),
}


class Puzzle(NamedTuple):
    """Clues that leave one order, and the place that is asked for."""

    clues: tuple[Clue, ...]
    row: str
    place: int

    @property
    def letter(self) -> str:
        """The option that is right."""
        return LETTERS[ITEMS.index(self.row[self.place - 1])]

    @property
    def canonical(self) -> str:
        """A text that is equal for two puzzles exactly if they have the same clues and ask for the same place."""
        return f"row {sorted(map(str, self.clues))} {self.place}"


def draw_puzzle(rng: Random, *, test: bool) -> Puzzle:
    """Draw a puzzle with one solution from the test problems, or from the training problems."""
    while True:
        row = pick(rng, _ROWS)
        left, clues = list(_ROWS), list[Clue]()
        while len(left) > 1:
            clue = _draw_clue(rng)
            if clue.allows(row) and len(still := [other for other in left if clue.allows(other)]) < len(left):
                clues.append(clue)
                left = still
        place = pick(rng, [i + 1 for i, item in enumerate(row) if item in ITEMS[: len(LETTERS)]])
        puzzle = Puzzle(tuple(shuffled(rng, clues)), row, place)
        if is_test(puzzle.canonical) == test:
            return puzzle


def _draw_clue(rng: Random) -> Clue:
    kind = favour(rng, ("apart", "not at", "before", "next"))  # the more a clue says, the shorter the search
    a, b, *_ = shuffled(rng, ITEMS)
    if kind == "not at":
        return Clue(kind, a, str(between(rng, 1, len(ITEMS))))
    return Clue(kind, a, b) if kind == "before" else Clue(kind, *sorted((a, b)))


def long_choice_problem(rng: Random, problem_id: str, *, test: bool) -> tuple[Problem, Puzzle]:
    puzzle = draw_puzzle(rng, test=test)
    opener = favour(rng, _OPENERS).format(", ".join(ITEMS))
    clues = ". ".join(map(str, puzzle.clues))
    prompt = f"{opener} {clues}.\n{OPTIONS}\n{favour(rng, _ASKS).format(puzzle.place)}"
    return Problem(problem_id, "long-choice", prompt, puzzle.letter, kind="choice"), puzzle


def long_choice_example(rng: Random, style: str) -> Example:
    problem, puzzle = long_choice_problem(rng, "train", test=False)
    fields = {"letter": puzzle.letter, "item": puzzle.row[puzzle.place - 1], "place": puzzle.place}
    thought = f"{_reason(rng, puzzle, style)}\n{favour(rng, _CONCLUSIONS).format(**fields)}"
    final = favour(rng, BOXES).format(problem.answer) + favour(rng, _TAILS).format(**fields)
    return Example(problem, thought, final, style)


def _reason(rng: Random, puzzle: Puzzle, style: str) -> str:
    lines = list[str]()
    if style != "low" and chance(rng, _RESTART):
        lines += _search(rng, puzzle)
        lines = [*lines[: max(2, int(rng.random() * len(lines)))], favour(rng, _AGAIN)]
    lines += _search(rng, puzzle)
    if style == "high" or (style != "low" and chance(rng, 0.3)):
        lines += [f"Check {_spaced(puzzle.row)}: {', '.join(map(str, puzzle.clues))}. All hold."]
    return "\n".join(lines)


def _search(rng: Random, puzzle: Puzzle) -> list[str]:
    """The lines of a search from left to right, up to the order that all clues allow."""
    lines = list[str]()

    def extend(row: str) -> bool:
        if len(row) == len(ITEMS):
            return True
        for item in shuffled(rng, [item for item in ITEMS if item not in row]):
            tried = row + item
            broken = next((clue for clue in puzzle.clues if not clue.allows(tried)), None)
            lines.append(_spaced(tried) + (f" no: {broken}." if broken else "."))
            if broken is None and extend(tried):
                return True
        lines.append(favour(rng, _BACKS).format(_spaced(row)))
        return False

    extend("")
    return lines


def _spaced(row: str) -> str:
    return " ".join(row)

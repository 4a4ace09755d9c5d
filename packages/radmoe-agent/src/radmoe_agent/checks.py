"""Checks patches before anything is chosen: whether each applies to its repository, and passes the tests that the repository ships.

Everything runs confined, in copies of the repository that this process neither reads nor writes. The tests are those that an
instance names (`visible_tests`): what anybody can run. Hidden tests have no place here.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from radmoe.errors import EngineError
from radmoe_agent.candidates import Candidate
from radmoe_agent.defaults import TEST_SECONDS
from radmoe_agent.instances import Instance

if TYPE_CHECKING:
    from collections.abc import Iterator

    from radmoe_agent.confined import ConfinedEnvironment
    from radmoe_agent.session import Finished

FAILS = "its patch fails the visible tests"


def check_confinement() -> None:
    """Refuse a machine that cannot run git confined, with an EngineError: that is the fault of no repository."""
    from radmoe_agent.run import silence

    silence()
    from radmoe_agent import confined

    confined.check_confinement()


def check_patches(
    instance: Instance, members: Sequence[Candidate], *, test_seconds: int = TEST_SECONDS
) -> list[Candidate]:
    """The candidates of an instance, of which those whose patch does not apply, or fails the visible tests, cannot be submitted.

    Where every patch that applies fails the visible tests, they tell nothing about which one is right: all stay, with a note.
    An issue that is solved in a container has no repository here, and nothing is checked. Equal patches are checked once.
    """
    if instance.repository is None and not instance.files:
        return list(members)
    patches = dict.fromkeys(one.patch for one in members if one.usable)
    try:
        problems = _unapplied(instance, list(patches))
        failures = {}
        if instance.visible_tests:
            applied = [patch for patch in patches if patch not in problems]
            failures = {patch: said for patch in applied if (said := _failure(instance, patch, test_seconds))}
            nobody_passes = len(failures) == len(applied)
    except EngineError as error:  # somebody else made the repository: what is wrong with it costs no other
        problem = f"its patch cannot be checked ({error})"
        return [replace(one, problem=problem) if one.usable else one for one in members]
    checked = []
    for one in members:
        if one.usable and one.patch in problems:
            one = replace(one, problem=problems[one.patch])
        elif one.usable and one.patch in failures:
            said = f"{FAILS} ({failures[one.patch]})"
            note = f"{said}, as every other does"
            one = replace(one, notes=(*one.notes, note)) if nobody_passes else replace(one, problem=said)
        checked.append(one)
    return checked


def _unapplied(instance: Instance, patches: Sequence[str]) -> dict[str, str]:
    """The patches that do not apply, and what git says of each."""
    problems = {}
    with _work_tree(instance) as place:
        for patch in patches:
            done = place.run("git apply --check -", stdin=patch.encode("utf-8", "replace"))
            if done.code != 0 or done.stopped:
                problems[patch] = f"its patch does not apply ({_first_line(done, 'git gives no reason')})"
    return problems


def _failure(instance: Instance, patch: str, seconds: int) -> str:
    """What the visible tests say of a patch that fails them, in a few words; empty where it passes."""
    with _work_tree(instance) as place:
        place.run("git apply -", stdin=patch.encode("utf-8", "replace"))
        done = place.run(instance.visible_tests, timeout=seconds)
    if done.stopped:
        return done.stopped
    lines = done.output.decode(errors="replace").split("\n")
    said = [line.strip() for line in lines if line.strip()]  # tests sum up at their end
    return "" if done.code == 0 else f"exit {done.code}: {said[-1][:200] if said else 'they say nothing'}"


@contextmanager
def _work_tree(instance: Instance) -> Iterator[ConfinedEnvironment]:
    """A confined copy of the repository, for as long as the context lasts."""
    from radmoe_agent.run import silence

    silence()
    from radmoe_agent.confined import ConfinedEnvironment

    repository = "" if instance.repository is None else str(instance.repository)
    place = ConfinedEnvironment(repository=repository, files=dict(instance.files))
    try:
        yield place
    finally:
        place.cleanup()


def _first_line(done: Finished, otherwise: str) -> str:
    said = done.stopped or done.output.decode(errors="replace").strip() or otherwise
    return said.splitlines()[0][:200]

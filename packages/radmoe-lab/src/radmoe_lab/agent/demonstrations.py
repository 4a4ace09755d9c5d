"""Trajectories to train on: a programmatic expert fixes a repository, in one of very many styles.

It looks at files in one order or another, with or without line numbers, runs the tests before or after or not at all,
edits by sed, Python or a new file, and submits. Some attempts go wrong first; no loss is taken on a wrong step, so that
a model learns to recover from mistakes, not to make them. After a wrong attempt a few give up.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from radmoe_lab.agent import shell
from radmoe_lab.agent.functions import KINDS, Function, key
from radmoe_lab.agent.reasoning import body_of, compare, compare_entry, find_number, say
from radmoe_lab.agent.repositories import BuggyRepository, Edit, draw_repository
from radmoe_lab.agent.shell import ShellResult
from radmoe_lab.agent.templates import Message, observation, opening, reply
from radmoe_lab.tasks.draw import chance, pick, shuffled

GIVES_UP = 0.2  # of the attempts that failed
GOES_WRONG = 0.22  # of the demonstrations that check what they did


@dataclass(frozen=True)
class DemonstrationTurn:
    """One turn of a demonstration: a thought, the command that follows, and whether the model is to learn it."""

    thought: str
    ran: ShellResult
    learn: bool = True


@dataclass(frozen=True)
class Demonstration:
    repository: BuggyRepository
    turns: tuple[DemonstrationTurn, ...]

    @property
    def files(self) -> dict[str, str]:
        """The files after the last turn."""
        return self.turns[-1].ran.files

    def messages(self) -> list[Message]:
        messages = opening(self.repository.issue)
        for turn in self.turns:
            messages.append({"role": "assistant", "content": reply(turn.thought, turn.ran.command)})
            messages.append({"role": "user", "content": observation(turn.ran.output, turn.ran.code)})
        return messages[:-1]  # what a submission prints is seen by nobody


@dataclass
class _Work:
    """The state of a demonstration that is being written."""

    rng: Random
    repository: BuggyRepository
    files: dict[str, str]
    numbered: bool
    careful: bool
    tested: bool = False  # whether it has seen which tests fail
    turns: list[DemonstrationTurn] = field(default_factory=list)

    def do(self, thought: str, ran: ShellResult, *, learn: bool = True) -> None:
        self.turns.append(DemonstrationTurn(thought, ran, learn))
        self.files = ran.files


def training_demonstration(rng: Random) -> Demonstration:
    """Draw a demonstration in a training repository, which is never a test repository."""
    return demonstrate(rng, draw_repository(rng, "training", test=False))


def demonstrate(rng: Random, repository: BuggyRepository) -> Demonstration:
    """Write a demonstration that fixes a repository."""
    work = _Work(rng, repository, dict(repository.files), chance(rng, 0.5), chance(rng, 0.5))
    _begin(work)
    finding = _read(work)
    verifies = chance(rng, 0.6)
    edit = repository.edit
    if verifies and chance(rng, GOES_WRONG) and _go_wrong(work, finding):
        if chance(rng, GIVES_UP):
            work.do(say(rng, "I do not find it, so I stop here.", "I give up."), shell.submit(work.files))
            return Demonstration(repository, tuple(work.turns))
        finding = _again(work, edit)
    _mend(work, edit, finding)
    if verifies:
        passed = say(rng, "I run the tests again.", "Now the tests should pass.", "I check it.")
        work.do(passed, shell.check(work.files, repository.visible))
    if chance(rng, 0.12):
        work.do(say(rng, "I look at the change.", "This is what changed."), shell.diff(work.files, repository.files))
    done = "All tests pass, so I submit." if verifies else "I submit the change."
    work.do(say(rng, done, "It is mended, and I submit."), shell.submit(work.files))
    return Demonstration(repository, tuple(work.turns))


def _begin(work: _Work) -> None:
    """Write the first turns: list the files, run the tests, or search for definitions."""
    rng, entry = work.rng, work.repository.entry
    first = [name for name, share in (("ls", 0.45), ("check", 0.7), ("grep", 0.1)) if chance(rng, share)]
    for name in shuffled(rng, first):
        if name == "ls":
            work.do(say(rng, f"The issue is about {entry}. I list the files.", "What is there?"), shell.ls(work.files))
        elif name == "check":
            work.do(
                say(rng, "I run the tests first.", "Which tests fail?"),
                shell.check(work.files, work.repository.visible),
            )
        else:
            work.do("Where are the functions?", shell.grep(work.files, "def "))
    work.tested = "check" in first


def _read(work: _Work) -> str:
    """Read files until the bug is found. Returns the thought that concludes the reading."""
    rng, repository = work.rng, work.repository
    target = repository.target
    if work.tested and repository.direct and target is not None and chance(rng, 0.85):
        _view(
            work,
            f"{target.module}.{target.function.name} fails by itself, so I read {target.module}.py.",
            target.module,
        )
        return _judge(work, target.module, [target.function])[0]
    about = say(rng, f"It is about {repository.entry}, so I read", f"{repository.entry} fails. I read")
    homes = [*dict.fromkeys(step.module for step in repository.steps)]
    if not work.numbered and chance(rng, 0.2):
        modules = [repository.entry, *homes]
        work.do(f"{about} all of it.", shell.cat(work.files, *(f"{name}.py" for name in modules)))
        return _conclude(work, modules)
    _view(work, f"{about} {repository.entry}.py.", repository.entry)
    text, wrong = compare_entry(repository, work.files[f"{repository.entry}.py"])
    if wrong:
        return text
    for place, module in enumerate(homes):
        _view(work, f"{text} {say(rng, 'Next', 'Now')} {module}.py.", module)
        used = [step.function for step in repository.steps if step.module == module]
        text, wrong = _judge(work, module, used)
        if wrong or place == len(homes) - 1:
            break
    return text if wrong else f"{text} {_open_number(work)}".strip()


def _conclude(work: _Work, modules: list[str]) -> str:
    """Return the concluding thought after all files were read at once."""
    repository = work.repository
    text, wrong = compare_entry(repository, work.files[f"{repository.entry}.py"])
    for module in modules[1:]:
        if not wrong:
            used = [step.function for step in repository.steps if step.module == module]
            more, wrong = _judge(work, module, used)
            text += f" {more}"
    return text if wrong else f"{text} {_open_number(work)}".strip()


def _judge(work: _Work, module: str, functions: list[Function]) -> tuple[str, bool]:
    """Compare the functions of a module with their docstrings, in the file's order, until one is wrong."""
    parts = []
    for function in work.repository.modules[module]:
        if function in functions:
            text, wrong = compare(function, work.files[f"{module}.py"])
            parts.append(text)
            if wrong:
                return " ".join(parts), True
            if work.repository.number_open and work.repository.direct and functions == [function] and function.vague:
                return f"{text} {_open_number(work)}", True
    return " ".join(parts), False


def _open_number(work: _Work) -> str:
    repository = work.repository
    if not repository.number_open:
        return ""
    assert repository.target is not None
    head = f"So it is {repository.target.function.name}. "
    return head + find_number(work.rng, repository, work.files, tested=work.tested, careful=work.careful)


def _view(work: _Work, thought: str, module: str) -> None:
    name = f"{module}.py"
    work.do(thought, shell.cat_numbered(work.files, name) if work.numbered else shell.cat(work.files, name))


def _mend(work: _Work, edit: Edit, finding: str, *, learn: bool = True) -> None:
    """Make an edit, in one of several ways that change nothing else."""
    rng, files = work.rng, work.files
    wanted = edit.apply(files)
    old = files[edit.file].split("\n")[edit.first - 1 : edit.first - 1 + edit.removed]
    ways: list[ShellResult | None] = [shell.write(files, edit.file, wanted[edit.file])]
    if edit.removed == 0 or edit.removed == len(edit.lines):
        lines = shell.replace_lines(files, edit.file, edit.first, edit.removed, edit.lines)
        ways += [lines, lines, lines] if work.numbered else []
    if edit.removed == len(edit.lines) == 1:
        pair = old[0].strip(), edit.lines[0].strip()
        short = key(pair[0]), key(pair[1])
        ways += [shell.python_replace(files, edit.file, *pair), shell.substitute(files, edit.file, *short)]
        ways += [shell.substitute(files, edit.file, *short)] * 2
    exact = [way for way in ways if way is not None and way.files == wanted]
    where = f" Line {edit.first} of {edit.file}." if work.numbered else f" I change {edit.file}."
    work.do(finding + where, pick(rng, exact), learn=learn)


def _go_wrong(work: _Work, finding: str) -> bool:
    """Make a mistake and run the tests. Returns whether the tests fail; False if there was no mistake to make."""
    rng, repository = work.rng, work.repository
    edit = _mistake(rng, repository)
    if edit is None:
        return False
    before = len(work.turns)
    _mend(work, edit, finding if repository.number_open else "Perhaps it is here.", learn=False)
    if work.turns[-1].ran.files[edit.file] == repository.fixed[edit.file]:  # no mistake after all
        work.files = work.turns[before - 1].ran.files if before else dict(repository.files)
        del work.turns[before:]
        return False
    work.do(say(rng, "I run the tests again.", "I check it."), shell.check(work.files, repository.visible))
    work.tested = True
    return work.turns[-1].ran.code != 0


def _mistake(rng: Random, repository: BuggyRepository) -> Edit | None:
    """Draw a mistake: a wrong number, or a change to a function that was right."""
    if repository.number_open and len(repository.edit.lines) == 1:
        assert repository.target is not None
        k = repository.target.function.k
        wrong = k + pick(rng, (-10, -2, -1, 1, 2, 10))
        line = repository.edit.lines[0].replace(f" {k}", f" {wrong}")
        return Edit(repository.edit.file, repository.edit.first, 1, (line,)) if wrong > 0 else None
    others = [step for step in repository.steps if step != repository.target]
    if not others:
        return None
    step = pick(rng, others)
    bug = pick(rng, KINDS[step.function.kind].bugs)
    file, source = f"{step.module}.py", repository.files[f"{step.module}.py"]
    body = body_of(source, step.function.name).split("\n")
    new = bug.body.format(k=step.function.k, j=step.function.k + 1).split("\n")
    places = [i for i in range(len(body)) if len(new) == len(body) and new[i] != body[i]]
    if len(places) != 1:
        return None
    first = source.split("\n").index(f"def {step.function.name}(values):") + 3 + places[0]
    return Edit(file, first, 1, ("    " + new[places[0]],))


def _again(work: _Work, edit: Edit) -> str:
    """Recover from a mistake: undo it if it was in another function, and reason again."""
    rng, repository = work.rng, work.repository
    changed = [name for name in work.files if work.files[name] != repository.files[name]]
    if changed != [edit.file] or not repository.number_open:
        for name in changed:
            undo = say(rng, "That was not it. I undo it.", "It still fails, so I take it back.")
            work.do(undo, shell.restore(work.files, repository.files, name))
        target = repository.target
        if target is None:
            return compare_entry(repository, work.files[f"{repository.entry}.py"])[0]
        if repository.number_open:
            return _open_number(work)
        return compare(target.function, work.files[f"{target.module}.py"])[0]
    work.careful = True
    return f"It still fails. Once more. {_open_number(work)}"

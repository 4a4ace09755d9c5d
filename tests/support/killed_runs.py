"""Commands that are killed and run again: what each acknowledged is still there, and nothing that is there is wrong.

`kills` runs a command to its end, then again and again in new places with SIGKILL at some moment, and looks at what is left
each time. Moments are file operations of the command, which are the same in every run, and seconds of its run time. A
rollout counts as acknowledged once `PoolWriter.add` has returned. Runs are forked from a process that has imported
torch and has not used it, so this is a program of its own: `python tests/support/killed_runs.py COMMAND...` prints a line
of JSON for each kill.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import hashlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from forked_runs import Outcome, Place, become, make, place, radmoe, warm

PROBLEMS = 3
_CHANGES = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.truncate")
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_RANDOM = re.compile("[0-9a-f]{16}")
_OF_PYTHON = re.compile(r"/outside/(home/|tmp/\w{8}$)")  # what tempfile tries out, and caches
_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER
_SECONDS = 120.0  # that a run may take
_AGENT_TEMPLATE = (
    "{% for m in messages %}{{ m.role }}: {{ m.content }}<|im_end|>{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)


class Broken(Exception):
    """A condition that a killed command did not keep."""


class Moment(NamedTuple):
    """When a run is killed: at a file operation, which may be its n-th of this kind, or after some seconds.

    That is before the operation, but for opening a file that becomes empty by it: then the file is empty.
    """

    operation: str = ""
    number: int = 1
    seconds: float = 0.0

    def __str__(self) -> str:
        return f"{self.operation} no. {self.number}" if self.operation else f"{self.seconds:.2f} s"


@dataclass(frozen=True)
class Inputs:
    """What the commands read, made once; `servers` are the addresses of servers by their engine."""

    root: Path
    servers: dict[str, str] = field(default_factory=dict)

    def __truediv__(self, name: str) -> Path:
        return self.root / name


Words = Callable[[Inputs, Path], list[object]]
_SMALL = ["-n", 4, "--max-tokens", 20, "--batch-size", 4, "--threads", 1]


def _sampled(*more: object) -> Words:
    return lambda inputs, out: ["capture", *more, "--data", inputs / "p.jsonl", "--out", out, *_SMALL]


def _served(engine: str) -> Words:
    def words(inputs: Inputs, out: Path) -> list[object]:
        more = ["--engine", engine, "--url", inputs.servers[engine], "--model", inputs / "tiny", "--raw"]
        return _sampled(*more)(inputs, out)[:-2]  # without --threads, which are the server's

    return words


COMMANDS: dict[str, Words] = {
    "capture, transformers": lambda inputs, out: [
        *("capture", "--model", "lab-qwen", "--task", "math-2", "--limit", PROBLEMS, "--out", out, *_SMALL),
        *("--max-tokens", 60),
    ],
    "capture, vllm-http": _served("vllm-http"),
    "capture, sglang-http": _served("sglang-http"),
    "capture, llamacpp": lambda inputs, out: _sampled("--engine", "llamacpp", "--model", inputs / "tiny.gguf")(
        inputs, out
    ),
    "replay of a pool": lambda inputs, out: [
        *("replay", inputs / "sampled", "--model", inputs / "tiny", "--out", out, "--threads", 1),
    ],
    "replay of a file": lambda inputs, out: [
        *("replay", inputs / "rollouts.jsonl", "--model", inputs / "tiny", "--out", out),
        *("--threads", 1),
    ],
    "merge": lambda inputs, out: ["merge", inputs / "part-1", inputs / "part-2", "--out", out],
    "agent run": lambda inputs, out: [
        *("agent", "run", "--model", inputs / "agent", "--data", inputs / "issues", "--out", out, "-n", 3),
        *("--config", inputs / "issues" / "mini.yaml", "--max-tokens", 16, "--steps", 3, "--batch-size", 4),
        *("--threads", 1),
    ],
    "agent run, the lab's model": lambda inputs, out: [
        *("agent", "run", "--model", "lab-agent-qwen", "--data", inputs / "lab", "--out", out, "-n", 2),
        *("--config", inputs / "lab" / "mini.yaml", "--threads", 1),
    ],
    "agent import": lambda inputs, out: [
        *("agent", "import", *(inputs / f"theirs-{run}" for run in range(4)), "--model", inputs / "agent"),
        *("--out", out, "--threads", 1),
    ],
}
SAMPLE = {
    "capture, vllm-http": Moment("add", 5),
    "capture, llamacpp": Moment("rename moe_meta.json"),
    "replay of a file": Moment("open .pool.json.*.tmp"),
    "merge": Moment("open .runs.parquet.*.tmp"),
    "agent run": Moment("open .preds.json.*.tmp", 2),
    "agent import": Moment("open .candidates.jsonl.*.tmp"),
}


# -- what they read --------------------------------------------------------------------------------------------------


def prepare(root: Path, *, lab: bool) -> None:
    """Make what the commands read."""
    import tiny_moe
    from radmoe.pool import open_pool
    from radmoe_lab import gguf

    tiny_moe.save(root / "tiny", chat=True)
    gguf.write_gguf(tiny_moe.model("qwen3-moe"), tiny_moe.tokenizer(chat=True), root / "tiny.gguf")
    rows = [{"id": f"q{i}", "prompt": f"So the sum is {i}"} for i in range(PROBLEMS)]
    _write_rows(root / "p.jsonl", rows)
    for name, part in (("part-1", ["--part", "1/2"]), ("part-2", ["--part", "2/2"]), ("sampled", [])):
        _within(*_sampled("--model", root / "tiny", *part)(Inputs(root), root / name))
    pool = open_pool(root / "sampled")
    rows = [
        {"id": problem, "prompt": f"So the sum is {problem}", "text": text or "So", "rollout_index": index}
        for problem in pool.problems
        for index, text in zip(pool.rollout_indices(problem), pool.texts(problem), strict=True)
    ]
    _write_rows(root / "rollouts.jsonl", rows)
    tiny_moe.save(root / "agent", max_position_embeddings=2048)
    tiny_moe.PreTrainedTokenizerFast(
        tokenizer_object=tiny_moe.planted.tokenizer(), eos_token="<|im_end|>", chat_template=_AGENT_TEMPLATE
    ).save_pretrained(root / "agent")
    (root / "issues").mkdir()
    issues = [{"instance_id": f"i{k}", "problem_statement": "mend", "files": {"a.py": "x = 1\n"}} for k in range(3)]
    _write_rows(root / "issues" / "instances.jsonl", issues)
    (root / "issues" / "mini.yaml").write_text('agent: {system_template: "Mend.", instance_template: "{{task}}"}\n')
    answer = "<think>So</think>```mswea_bash_command\nls\n```"
    for run_, patch in enumerate(("+1\n", "+2\n", "", "+3\n")):
        for name in ("i0", "i1"):
            messages = [{"role": "user", "content": "mend"}, {"role": "assistant", "content": answer}]
            info = {"exit_status": "Submitted", "submission": patch, "config": {"model": {"model_name": "m"}}}
            path = root / f"theirs-{run_}" / name / f"{name}.traj.json"
            path.parent.mkdir(parents=True)
            path.write_text(json.dumps({"messages": messages, "info": info}))
    if lab:
        from radmoe_lab.agent.export import write_instances
        from radmoe_lab.agent.repositories import repositories

        write_instances(root / "lab", repositories(seed=0, limit=2))


def _write_rows(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def _within(*words: object) -> None:
    with contextlib.suppress(SystemExit):
        radmoe(*words)()


@contextlib.contextmanager
def _servers() -> Iterator[subprocess.Popen[str]]:
    """Servers that speak vLLM's and SGLang's protocol, in a process of their own, which prints their addresses."""
    code = (
        "import sys; sys.path[:0] = sys.argv[1:]\n"
        "import tiny_moe\nfrom fake_server import FakeServer\nengine = tiny_moe.engine('qwen3-moe')\n"
        "with FakeServer(engine, plugin=True).running() as one, FakeServer(engine, 'sglang').running() as other:\n"
        "    print(one.url, other.url, flush=True)\n    sys.stdin.read()\n"
    )
    here = Path(__file__).parent
    command = [sys.executable, "-c", code, str(here)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


# -- what is there ---------------------------------------------------------------------------------------------------


def contents(out: Path, *, recover: bool) -> dict[str, Any]:
    """What a command left: every rollout (its tokens, and a checksum of all of it), labels, and what agents wrote.

    With `recover` the pool is completed first. Without a pool there is nothing. What is wrong with the pool is its `lie`.
    """
    from radmoe.errors import PoolNotFound
    from radmoe.grading.labels import read_labels
    from radmoe.pool import Pool, open_pool, schema

    path = out / "pool" if (out / "pool").is_dir() else out
    begun = any((path / name).exists() for name in (schema.OPEN_JSON, schema.POOL_JSON))
    if not begun:
        return {"rollouts": {}}
    if recover and (dropped := Pool.recover(path).dropped):
        return {"lie": f"recovery dropped {', '.join(map(str, dropped))[:200]}"}
    pool = open_pool(path)
    if faults := pool.verify():
        return {"lie": f"verify says: {faults[0]}"}
    rollouts = {}
    for row in pool.runs().to_pylist():
        read = partial(pool.shards[row["shard"]].read, run=row["row"])
        columns = [b"" if (part := read(column)) is None else part.tobytes() for column in schema.COLUMNS]
        tokens = read(schema.TOKEN_IDS)
        digests = [hashlib.sha256(data).hexdigest()[:16] for data in (tokens.tobytes(), b"".join(columns))]
        rollouts[f"{row['problem_id']}/{row['rollout_index']}"] = [digests[0], row["text"], digests[1]]
    made: dict[str, Any] = {"rollouts": rollouts}
    with contextlib.suppress(PoolNotFound):
        made["labels"] = {
            f"{problem}/{index}": [label.answer, label.correct]
            for problem, labels in read_labels(path).items()
            for index, label in labels.items()
        }
    if path != out and not recover:
        made["candidates"] = (out / "candidates.jsonl").read_text()
        made["predictions"] = {str(f.relative_to(out)): json.loads(f.read_text()) for f in out.glob("run_*/preds.json")}
        made["trajectories"] = {
            str(f.relative_to(out)): [(m["role"], m["content"]) for m in json.loads(f.read_text())["messages"]]
            for f in sorted(out.glob("run_*/*/*.traj.json"))
        }
    return made


def names(root: Path) -> set[str]:
    """What lies below a directory; shards of a pool are not told apart."""
    below = (path.relative_to(root) for path in root.rglob("*"))
    return {"/".join("shard" if part.startswith("token_data_") else part for part in path.parts) for path in below}


# -- running and killing ---------------------------------------------------------------------------------------------


class Runs:
    """The runs of one command, and what they must leave."""

    def __init__(self, name: str, inputs: Inputs, others: frozenset[int]) -> None:
        self.name, self.words, self.inputs, self.others = name, COMMANDS[name], inputs, others
        with place() as where:
            started = time.monotonic()
            if self.run(where, None) != 0:
                raise RuntimeError(f"{name} fails undisturbed: {self._said(where)}")
            self.seconds = time.monotonic() - started
            self.operations = Counter((where.root / "operations").read_text().splitlines())
            self.wanted, self.names = self._contents(where, recover=False), names(_work(where))

    def run(self, where: Place, moment: Moment | None) -> int | None:
        """Run the command, and kill it at a moment. Its exit code; None if it was killed."""
        return self._forked(where, lambda: self._work(where, moment), moment.seconds if moment else 0.0)

    def _forked(self, where: Place, work: Callable[[], object], seconds: float = 0.0) -> int | None:
        """Do something in a child, which is killed after some seconds unless they are 0. Its exit code; None if killed."""
        child = os.fork()
        if child == 0:
            become(where, work, where.root / "output")
        end = time.monotonic() + (seconds or _SECONDS)
        while True:
            pid, status = os.waitpid(child, os.WNOHANG)
            if pid:
                break
            if time.monotonic() > end:
                os.kill(child, signal.SIGKILL)
                status = os.waitpid(child, 0)[1]
                if not seconds:
                    raise Broken(f"HANG {self._said(where)}")
                break
            time.sleep(0.001)
        self._no_process_left()
        if os.WIFSIGNALED(status):
            if os.WTERMSIG(status) != signal.SIGKILL:
                raise Broken(f"CRASH {signal.Signals(os.WTERMSIG(status)).name} {self._said(where)}")
            return None
        if "Traceback (most recent call last)" in (where.root / "output").read_text(errors="replace"):
            raise Broken(f"TRACEBACK {self._said(where)}")
        return os.WEXITSTATUS(status)

    def _work(self, where: Place, moment: Moment | None) -> None:
        """In the child: count file operations, note what is acknowledged, and run the command."""
        from radmoe.pool import PoolWriter

        me, root, add = os.getpid(), str(where.root), PoolWriter.add
        seen = Counter[str]()

        def note(operation: str, emptied: str | None = None) -> None:
            seen[operation] += 1
            if moment is None:
                os.write(operations, f"{operation}\n".encode())
            elif (operation, seen[operation]) == moment[:2]:
                if emptied is not None:
                    os.open(emptied, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
                os.kill(me, signal.SIGKILL)

        def audit(event: str, arguments: tuple[Any, ...]) -> None:
            if event not in _CHANGES and not (event == "open" and int(arguments[2] or 0) & _WRITING):
                return
            path = next((str(one) for one in arguments[1::-1] if str(one).startswith(root)), None)
            if path is not None and os.getpid() == me and not _OF_PYTHON.search(path):
                emptied = path if event == "open" and arguments[2] & os.O_TRUNC else None
                note(f"{event.removeprefix('os.')} {_RANDOM.sub('*', Path(path).name)}", emptied)

        def add_and_tell(writer: Any, problem_id: str, *arguments: Any, **options: Any) -> None:
            add(writer, problem_id, *arguments, **options)
            os.write(told, f"{problem_id}/{options['rollout_index']}\n".encode())
            note("add")

        told, operations = (
            os.open(where.root / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            for name in ("acknowledged", "operations")
        )
        PoolWriter.add = add_and_tell  # type: ignore[method-assign, assignment]
        sys.addaudithook(audit)
        radmoe(*self.words(self.inputs, _work(where) / "out"))()

    def _no_process_left(self) -> None:
        """Orphans become children of this process: all of them must end by themselves."""
        end = time.monotonic() + 20
        while left := _children() - self.others:
            for pid in left:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)
            if time.monotonic() > end:
                raise Broken(f"LEFT processes {sorted(left)} of a killed command")
            time.sleep(0.002)

    def _said(self, where: Place) -> str:
        text = (where.root / "output").read_text(errors="replace")
        return next((line for line in reversed(text.splitlines()) if line.strip()), "nothing")

    def _contents(self, where: Place, *, recover: bool) -> dict[str, Any]:
        """`contents` in a child of its own, so that this process stays without threads; of a copy where it recovers."""
        out, answer = _work(where) / "out", where.root / "contents"
        if recover:
            out = where.root / "copy"
            shutil.rmtree(out, ignore_errors=True)
            if (_work(where) / "out").exists():
                shutil.copytree(_work(where) / "out", out)
        answer.unlink(missing_ok=True)
        self._forked(where, lambda: answer.write_text(json.dumps(contents(out, recover=recover))))
        made: dict[str, Any] = json.loads(answer.read_text())
        if "lie" in made:
            raise Broken(f"LIES {made['lie']}")
        return made

    def check_killed(self, where: Place, kept: dict[str, list[str]]) -> None:
        """What a kill left can be recovered, has all that was acknowledged, and nothing that a whole run has not."""
        told = where.root / "acknowledged"
        acknowledged = told.read_text().split("\n")[:-1] if told.exists() else []
        found = self._contents(where, recover=True)["rollouts"]
        if lost := [one for one in acknowledged if one not in found]:
            raise Broken(f"LOST {len(lost)} acknowledged rollouts, such as {lost[0]}")
        self._check_rollouts(found, kept)
        kept.update(found)

    def _check_rollouts(self, found: dict[str, list[str]], kept: dict[str, list[str]]) -> None:
        for name, (tokens, text, whole) in found.items():
            if [tokens, text] != self.wanted["rollouts"].get(name, [])[:2]:
                raise Broken(f"LIES rollout {name} is not that of an undisturbed run")
            if name in kept and kept[name][2] != whole:
                raise Broken(f"LIES rollout {name} has changed since it was recovered")

    def check_whole(self, where: Place, status: int | None, kept: dict[str, list[str]]) -> None:
        """A run that went to its end left what an undisturbed one leaves, and nothing else."""
        if status != 0 and not (status == 2 and "exists already" in self._said(where)):  # a merge that was all but over
            raise Broken(f"LOST it cannot go on: {self._said(where)}")
        made = self._contents(where, recover=False)
        self._check_rollouts(made["rollouts"], kept)
        for part in self.wanted:
            ours, theirs = made.get(part), self.wanted[part]
            if part == "rollouts":
                ours, theirs = sorted(made[part]), sorted(theirs)
            if ours != theirs:
                raise Broken(f"LIES {part} are not those of an undisturbed run")
        if names(_work(where)) != self.names:
            raise Broken(f"LEFT {sorted(names(_work(where)) ^ self.names)}")
        if left := [path.name for path in (where.root / "outside" / "tmp").iterdir()]:
            raise Broken(f"LEFT temporary {left}")


def _work(where: Place) -> Path:
    work = where.root / "work"
    work.mkdir(exist_ok=True)
    return work


def _children() -> set[int]:
    return {int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()}


def drawn(runs: Runs, seed: int) -> Iterator[Moment]:
    """Moments without end: in turn one of the kinds of file operations, and one of the seconds that a run takes."""
    rng = random.Random(f"{runs.name} {seed}")
    while True:
        operation = rng.choice(sorted(runs.operations))
        yield Moment(operation, rng.randint(1, runs.operations[operation]))
        yield Moment(seconds=rng.uniform(0.01, runs.seconds))


def kills(runs: Runs, moments: Iterator[Moment], number: int) -> Iterator[tuple[str, Outcome]]:
    """Kill a command at these moments, so many times; each kill by its moment, and what became of it.

    A run goes on from what the one before left until one comes to its end, and the next begins in a new place.
    """
    killed, over = 0, False
    while killed < number and not over:
        with place() as where:
            kept: dict[str, list[str]] = {}
            titles: list[tuple[str, float]] = []
            try:
                while True:
                    moment = next(moments, None) if killed < number else None
                    started, over = time.monotonic(), moment is None
                    status = runs.run(where, moment)
                    if status is not None:
                        break
                    killed += 1
                    titles.append((f"{runs.name}, killed at {moment}", time.monotonic() - started))
                    runs.check_killed(where, kept)
                runs.check_whole(where, status, kept)
                line = "accepted: as an undisturbed run"
            except Broken as error:
                line = str(error)
                titles = titles or [(f"{runs.name}, not killed", time.monotonic() - started)]
            for title, seconds in titles:
                yield title, Outcome(line, seconds, 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("commands", nargs="*", default=[], metavar="COMMAND", help="all unless some are named")
    parser.add_argument("--kills", type=int, default=20, help="of each command")
    parser.add_argument("--sample", action="store_true", help="one kill of some commands, at a moment that is known")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    arguments.commands = arguments.commands or list(SAMPLE if arguments.sample else COMMANDS)
    if unknown := set(arguments.commands) - set(COMMANDS):
        parser.error(f"no command {min(unknown)!r}: name some of {', '.join(map(repr, COMMANDS))}")
    warm()
    os.environ["MSWEA_SILENT_STARTUP"] = "1"
    import minisweagent.run.benchmarks.swebench  # noqa: F401
    import pandas  # noqa: F401  (by pyarrow, when it first makes an array)
    import transformers  # noqa: F401

    import radmoe.capture
    import radmoe.engines.torch.engine  # noqa: F401

    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    with contextlib.ExitStack() as stack:
        root = stack.enter_context(place())
        inputs, others = Inputs(root.root / "inputs"), frozenset[int]()
        inputs.root.mkdir()
        serves = any("http" in name for name in arguments.commands)
        servers = stack.enter_context(_servers()) if serves else None  # it starts while the inputs are made
        make(root, lambda where: prepare(inputs.root, lab=any("lab" in name for name in arguments.commands)))
        if servers is not None and servers.stdout is not None:
            addresses = dict(zip(("vllm-http", "sglang-http"), servers.stdout.readline().split(), strict=True))
            inputs, others = Inputs(inputs.root, addresses), frozenset({servers.pid})
        for name in arguments.commands:
            runs = Runs(name, inputs, others)
            moments = iter([SAMPLE[name]]) if arguments.sample else drawn(runs, arguments.seed)
            for title, outcome in kills(runs, moments, arguments.kills):
                print(json.dumps([title, *outcome[:3]]), flush=True)


if __name__ == "__main__":
    main()

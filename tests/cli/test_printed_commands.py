"""What we print runs: every command and snippet of README.md, docs/ and `--help`, in the environment of `make demo`.

Small real pools stand where a reader's would, and captures are made small; what is not run says why (`UNRUN`), and its
options are parsed by the real command line.
"""

from __future__ import annotations

import ast
import importlib
import json
import lzma
import re
import shutil
import signal
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import pytest

from printed_commands import (
    ROOT,
    commands,
    driven,
    extras_for,
    inline_commands,
    mentioned_commands,
    parse,
    printed_commands,
    reason,
    snippets,
)
from radmoe_studies.report.published import COMMITTED

WEIGHTS = ROOT / "packages/radmoe-lab/src/radmoe_lab/weights/lab-qwen"
SMALL = {  # what is added to a printed command, so that it takes seconds
    "capture": ("-n", "2", "--limit", "4"),
    "lab pools": ("-n", "4", "--limit", "1", "--config", "lab-qwen-instruct", "--task", "math-1"),
    "agent run": ("-n", "2", "--limit", "1"),
    "bench": ("--limit", "1"),
    "study": ("--quick",),
    "radmoe_lab.train": ("--steps", "1"),
    "radmoe_lab.agent.comparison": ("--limit", "2"),
}
NAMES = r"""
import numpy as np
from tokenizers import Tokenizer
from radmoe import open_pool
group = next(open_pool("graded/").groups())
rollouts, shape, vocab, paths, prompt = group.rollouts, group.shape, group.vocab, ["graded/"], "What is 2+3?"
rng, ids = np.random.default_rng(0), Tokenizer.from_file("tokenizer.json").encode(r"So \boxed{5}").ids
experts = [np.argsort(rng.random((len(ids), 48, 128)))[..., :8] for _ in range(3)]
my_rollouts = [("sum", ids, one, np.full(one.shape, 0.125)) for one in experts]
"""  # what snippets take for granted
README_PROBLEMS = int(re.search(r"capture --model lab-qwen .*--limit (\d+)", (ROOT / "README.md").read_text())[1])  # type: ignore[index]


def rows(path: Path, *lines: dict[str, Any]) -> None:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with what the pages name: pools of the shipped rollouts, an agent's runs, a checkpoint, files."""
    place = tmp_path_factory.mktemp("reader") / "here"
    place.mkdir()
    for name in ("checkpoint", "model"):
        (place / name).symlink_to(WEIGHTS)
    shutil.copy(WEIGHTS / "tokenizer.json", place)
    adopted = (path for one in COMMITTED.values() for path in (one.page, one.file))
    for name in (Path("README.md"), *adopted):  # of a checkout
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, place / name)
    sums = {"id": "sum", "question": "What is 2+3?", "answer": "5"}
    for name in ("mine", "p", "aime", "aime_2025"):
        rows(place / f"{name}.jsonl", *(sums | {"id": f"sum-{i}"} for i in range(4)))
    text = {"problem_id": "sum", "prompt": "What is 2+3?", "text": "It is \\boxed{5}.\n```python\nprint(5)\n```\n"}
    for name in ("texts", "rollouts"):
        rows(place / f"{name}.jsonl", text, text)
    part = ("capture", "--model", "lab-qwen", "--task", "math-2", "-n", 2, "--limit", 2, "--max-tokens", 20)
    shipped = ("lab", "pools", "--out", "pools", "-n", 32, "--config", "lab-qwen-thinking")
    made = driven(
        [
            {"argv": ["radmoe", *map(str, words)]} if words[0] != "-m" else {"argv": ["python", *map(str, words)]}
            for words in (
                (*shipped, "--task", "math-2", "--limit", README_PROBLEMS),
                (*shipped, "--task", "code", "--limit", 2),
                (*shipped[:3], "other", *shipped[4:], "--task", "math-1", "--limit", README_PROBLEMS, "-n", 8),
                (*shipped[:-1], "lab-oss-high", "--task", "code", "--limit", 2),
                ("lab", "agent", "--limit", 1, "--out", "agent"),
                (*part, "--part", "1/2", "--out", "worker-1"),
                (*part, "--part", "2/2", "--out", "worker-2"),
                ("calibrate", "pools/lab-qwen-thinking-math-2", "--out", "sure.json"),
                ("-m", "radmoe_lab.gguf", "lab-qwen", "model.gguf"),
                ("-m", "radmoe_lab.agent.export", "--out", "issues", "--limit", 1),
                ("export", "pools/lab-qwen-thinking-math-2", "--hub", "dataset"),
            )
        ],
        place,
        "dev",
        keep=True,
    )
    assert not [one["said"] for one in made if one["code"]]
    for name in ("pool", "graded", "new", "old"):
        shutil.copytree(place / "pools/lab-qwen-thinking-math-2", place / name)
    (place / "other/lab-qwen-thinking-math-1").rename(place / "fresh")
    shutil.copytree(place / "pools/lab-qwen-thinking-code", place / "mine")
    for name in ("runs", "verdicts.jsonl"):
        (place / "agent" / name).rename(place / name)
    shutil.copy(place / "verdicts.jsonl", place / "issues")
    for file in (ROOT / "tests/data/frameworks").glob("*.xz"):  # rollout_0.pt, gen_batch.dp, responses.jsonl, ...
        (place / file.stem).write_bytes(lzma.decompress(file.read_bytes()))
    for name in ("problems", "answers"):
        ids = [f"math-2-{i:03}" for i in range(README_PROBLEMS)]
        rows(place / f"{name}.jsonl", *({"problem_id": i, "id": i, "question": "?", "answer": "5"} for i in ids))
    return place


def step(words: tuple[str, ...]) -> dict[str, Any]:
    """A printed command, made small. What it writes is not there before, and what it ends with is run too."""
    call = words[1] if words[0] == "radmoe" else words[2]
    name = f"{call} {words[2]}" if call in ("lab", "agent") else call
    small = SMALL.get(name, ())
    strange = name == "capture" and any("./" in word or "gguf" in word for word in words)  # the model knows no sums
    flag = "--hub" if name == "export" else "--out"
    out = (
        [words[words.index(flag) + 1]]
        if flag in words and name in ("capture", "import", "replay", "merge", "agent run", "export")
        else []
    )
    small = (*small, *(("--max-tokens", "40") if strange else ()))
    needs = ["README.md", "docs", "packages"] if name == "radmoe_studies.report.published" else []  # a checkout
    return {"argv": [*words, *small], "needs": needs, "without": out, "follow": not strange and "--json" not in words}


@pytest.mark.slow
def test_every_printed_command_and_snippet_runs_in_the_environment_that_prints_it(workspace: Path) -> None:
    """Also the commands that a command ends with: "Now try:  radmoe inspect pool"."""
    todo: list[tuple[str, str, dict[str, Any]]] = []  # where, the text, the step
    for words, where in printed_commands(workspace).items():
        if words[0] in ("radmoe", "python") and words[1] != "serve":
            todo.append((where, " ".join(words), step(words)))
    for one in snippets():
        if one.language == "python" and "OpenAI(" not in one.text:
            names = "" if extras_for(one.text) == "llamacpp" else NAMES
            small = one.text.replace("max_tokens=512", "max_tokens=40")
            code = names + small.replace("threads=8", "threads=1")  # more threads than cores wait for each other
            todo.append((one.where, one.text, {"code": code, "without": outs(one.text)}))
    todo = [one for one in todo if reason(*one[:2]) is None]
    wrong: list[str] = []
    counts: Counter[str] = Counter()
    for extras in sorted({extras_for(text) for _, text, _ in todo}):
        mine = [one for one in todo if extras_for(one[1]) == extras]
        for (where, text, done), result in zip(mine, driven([one[2] for one in mine], workspace, extras), strict=True):
            print(f"{result['seconds']:.1f} s, code {result['code']}: {where}: {text.splitlines()[0]}")
            hints = result.get("hints", [])
            counts.update(snippets="code" in done, commands="argv" in done, hints=len(hints))
            for said, one in ((text, result), *((" ".join(hint["argv"]), hint) for hint in hints)):
                if one["code"]:
                    wrong.append(f"{where}: {said}\n{one['said'][-900:]}")
    print(dict(counts))
    assert not wrong, "\n\n".join(wrong)
    assert counts["commands"] > 90
    assert counts["snippets"] > 8
    assert counts["hints"] > 5


def outs(code: str) -> list[str]:
    """The pools that a snippet writes."""
    return re.findall(r'(?:PoolWriter\(|plan, |checkpoint", )"(\w+/)"', code)


@pytest.mark.slow
def test_what_is_served_answers_as_the_pages_ask(tmp_path: Path) -> None:
    """`radmoe serve`, the clients of README and of docs/gateway.md, and curl."""
    command = [sys.executable, "-m", "radmoe", "serve", "--model", "lab-qwen", "--record", "served/", "--port", "0"]
    assert ("radmoe", *command[3:-2]) in printed_commands(tmp_path)
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as server:
        assert server.stdout is not None
        address = re.search(r"http://127\.0\.0\.1:\d+", server.stdout.readline())
        assert address is not None
        clients = [one for one in snippets() if one.language == "python" and "OpenAI(" in one.text]
        for one in clients:
            exec(compile(one.text.replace("http://localhost:8100", address[0]), one.where, "exec"), {})
        calls = [words for words in printed_commands(tmp_path) if words[0] == "curl"]
        for words in calls:
            body = {"content": words[-1], "headers": {"Content-Type": "application/json"}}  # as curl --json sends it
            answer = httpx.post(f"{address[0]}{words[1].partition(':8100')[2]}", timeout=60, **body)  # type: ignore[arg-type]
            assert answer.status_code == 200
        server.send_signal(signal.SIGTERM)
        assert server.wait(60) == 0
    assert (len(clients), len(calls)) == (2, 1)


@pytest.mark.slow
def test_what_is_not_run_is_parsed_by_the_real_command_line(tmp_path: Path) -> None:
    makefile = (ROOT / "Makefile").read_text()
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    wrong, modules = [], {}
    calls = [(where, list(words), True) for words, where in printed_commands(tmp_path).items()]
    calls += [(where, words, False) for where, words in inline_commands(tmp_path)]
    for where, words, whole in calls:
        fault = ""
        if words[0] == "radmoe":
            fault = parse(words[1:], whole=whole)
        elif words[:2] == ["podman", "run"]:
            fault = parse(["serve", *words[words.index("radmoe") + 1 :]])
        elif words[0] == "make":
            fault = "" if re.search(rf"^{words[1]}:", makefile, re.MULTILINE) else "the Makefile has no such target"
        elif words[0] == "pip":
            fault = "" if set(re.findall(r"\w+", words[2].partition("[")[2])) <= set(extras) else "no such extra"
        elif words[:2] == ["python", "-m"] and words[2].startswith(("radmoe", "benchmarks")):
            modules[tuple(words)] = where
        wrong += [f"{where}: {' '.join(words)}: {fault}"] if fault else []
    results = driven([{"parse": list(words)} for words in modules], tmp_path, "dev")
    for (words, where), result in zip(modules.items(), results, strict=True):
        wrong += [f"{where}: {' '.join(words)}: {result['said'][-300:]}"] if result["code"] else []
    assert not wrong, "\n".join(wrong)
    assert len(calls) > 250


def test_every_snippet_imports_what_is_there() -> None:
    """Also those that are not run."""
    for one in snippets():
        assert one.language in ("python", "commands", "listing", "toml", "yaml"), one.where
        assert one.language != "listing" or not re.search(r"^(radmoe|python|make) ", one.text, re.MULTILINE), one.where
        for node in ast.walk(ast.parse(one.text)) if one.language == "python" else ():
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("radmoe"):
                module = importlib.import_module(node.module or "")
                assert all(hasattr(module, name.name) for name in node.names), f"{one.where}: {ast.unparse(node)}"


def test_our_own_messages_name_options_that_exist() -> None:
    for where, name, options in mentioned_commands():
        known = {option for one in commands()[name].params for option in (*one.opts, *one.secondary_opts)}
        assert set(options) <= known, f"{where}: radmoe {name} has no {set(options) - known}"

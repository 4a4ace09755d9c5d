"""What docs/integrations.md shows of inspect_ai and lm-eval, run as it stands against a real server, and compared with `radmoe select`."""

from __future__ import annotations

import json
import os
import random
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from inspect_ai.log import EvalLog, read_eval_log

from radmoe import open_pool
from radmoe.grading.answers import extract, response

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[3] / "docs" / "integrations.md"
SECTION = PAGE.read_text().partition("\n## inspect_ai and lm-eval\n")[2].partition("\n## ")[0]
FENCES = re.findall(r"^```(\w*)\n(.*?)^```$", SECTION, re.MULTILINE | re.DOTALL)
FILES = [text for language, text in FENCES if language in ("python", "yaml")]
COMMANDS = [text.replace("\\\n", " ") for _, text in FENCES if text.startswith(("inspect ", "lm_eval "))]
OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "OPENAI_API_KEY": "none",
    "TOKENIZERS_PARALLELISM": "false",
}
QUESTIONS = 6


class Reader:
    """A directory with the page's files, in which its commands run."""

    def __init__(self, place: Path) -> None:
        self.place = place
        for name, text in zip(("sums.py", "recorded.py", "sums.yaml", "recorded.yaml"), FILES, strict=True):
            (place / name).write_text(text)
        rng = random.Random(31)
        with (place / "sums.jsonl").open("w") as lines:
            for _ in range(QUESTIONS):
                first, factor, less = rng.randint(100, 500), rng.randint(2, 9), rng.randint(100, 400)
                text = f"You have {first}. Then multiply by {factor}. Then decrease it by {less}. Give the final number modulo 1000 in \\boxed{{}}."
                lines.write(json.dumps({"input": text, "target": str((first * factor - less) % 1000)}) + "\n")

    def run(self, command: str, url: str = "") -> None:
        words = shlex.split(command.replace("http://localhost:8100/v1", url))
        module = {"inspect": "inspect_ai", "lm_eval": "lm_eval"}[words[0]]
        own = OFFLINE | {"HF_HOME": str(self.place / "hf"), "RADMOE_BASE_URL": url, "INSPECT_DISPLAY": "plain"}
        done = subprocess.run(
            [sys.executable, "-m", module, *words[1:]],
            cwd=self.place, env=os.environ | own, capture_output=True, text=True, timeout=240, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]

    def log(self, task: str) -> EvalLog:
        (path,) = (self.place / "logs").glob(f"*_{task}_*.eval")
        log = read_eval_log(str(path))
        assert log.status == "success"
        return log

    def samples(self, out: str, name: str) -> list[dict[str, Any]]:
        """lm-eval's own log of a task, of the filter of this name."""
        (path,) = (self.place / out).rglob("samples_*.jsonl")
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        return sorted((row for row in rows if row["filter"] == name), key=lambda row: row["doc_id"])


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Reader:
    """The page followed from its beginning to its end, with a real `radmoe serve --model lab-qwen --record pool/`."""
    reader = Reader(tmp_path_factory.mktemp("reader"))
    served, recorded, picks, picked = COMMANDS
    command = next(line for line in SECTION.splitlines() if line.startswith("radmoe serve")).partition("#")[0]
    with subprocess.Popen(
        [sys.executable, "-m", *command.split(), "--port", "0"],
        cwd=reader.place, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    ) as server:  # fmt: skip
        try:
            assert server.stdout is not None
            url = server.stdout.readline().split()[3].rstrip(",")
            reader.run(served, url)
            reader.run(picks, url)
        finally:
            server.send_signal(signal.SIGINT)
            assert server.wait(60) == 0
    reader.run(recorded)
    reader.run(picked)
    return reader


@pytest.fixture(scope="module")
def selected(reader: Reader) -> dict[str, dict[str, Any]]:
    return select(reader)


def select(reader: Reader, *options: str) -> dict[str, dict[str, Any]]:
    """What `radmoe select --json` prints of the recorded pool, by problem."""
    command = [sys.executable, "-m", "radmoe", "select", "pool/", "--json", *options]
    done = subprocess.run(command, cwd=reader.place, capture_output=True, text=True, check=True)
    return {line["problem_id"]: line for line in map(json.loads, done.stdout.splitlines())}


def asked(reader: Reader, question: str) -> list[str]:
    """The problems of the pool that were asked this, in order."""
    runs = open_pool(reader.place / "pool").runs(["problem_id", "prompt"]).to_pydict()
    pairs = dict(zip(runs["problem_id"], runs["prompt"], strict=True))
    return [problem for problem, prompt in pairs.items() if question in prompt]


def answer(reader: Reader, problem: str, index: int) -> str:
    return str(response(open_pool(reader.place / "pool").texts(problem)[index])).strip()


def test_inspects_task_returns_the_picks_of_radmoe_select(reader: Reader, selected: dict[str, dict[str, Any]]) -> None:
    samples = reader.log("sums").samples or []
    assert len(samples) == QUESTIONS
    for sample in samples:
        decision = sample.metadata["radmoe"]
        assert decision["problem"] == asked(reader, str(sample.input))[0]
        assert (decision["method"], decision["sampled"]["rollouts"], decision["recorded"]) == ("rad", 16, True)
        assert decision["pick"] == selected[decision["problem"]]["index"]
        assert sample.output.completion.strip() == answer(reader, decision["problem"], decision["pick"])


def test_inspects_reducer_scores_the_picks_of_radmoe_select(
    reader: Reader, selected: dict[str, dict[str, Any]]
) -> None:
    log = reader.log("recorded-sums")
    reductions = {one.reducer: one.samples for one in log.reductions or []}
    right = {}
    for sample in log.samples or []:
        place = sample.metadata["radmoe"]
        assert place["problem"] == asked(reader, str(sample.input))[-1]
        assert sample.output.completion == answer(reader, place["problem"], sample.epoch - 1)
        right[sample.id, place["rollout"]] = extract("math", sample.output.completion) == sample.target
    assert len(right) == 16 * QUESTIONS
    picks = reductions["radmoe_integrations/rad"]
    assert len(picks) == QUESTIONS
    for reduced in picks:
        place = (reduced.metadata or {})["radmoe"]
        assert place["rollout"] == selected[place["problem"]]["index"]
        assert (reduced.value == "C") is right[reduced.sample_id, place["rollout"]]
    for mean in reductions["mean"]:
        rollouts = [one for (sample, _), one in right.items() if sample == mean.sample_id]
        assert mean.value == pytest.approx(sum(rollouts) / 16)


def test_lm_eval_is_answered_with_the_picks_of_radmoe_select(
    reader: Reader, selected: dict[str, dict[str, Any]]
) -> None:
    rows = reader.samples("served", "served")
    assert len(rows) == QUESTIONS
    for row in rows:
        problem = asked(reader, row["doc"]["input"])[-1]
        assert row["resps"][0][0].strip() == answer(reader, problem, selected[problem]["index"])


@pytest.mark.parametrize("preset", ["rad", "best"])
def test_lm_evals_filter_picks_as_radmoe_select(reader: Reader, preset: str) -> None:
    selected = select(reader, *(["--preset", "best"] if preset == "best" else []))
    rows = reader.samples("picked", preset)
    assert len(rows) == QUESTIONS
    for row in rows:
        problem = asked(reader, row["doc"]["input"])[-1]
        given = extract("math", answer(reader, problem, selected[problem]["index"]))
        assert row["filtered_resps"] == [given]
        assert row["exact_match"] == float(given == row["target"])


def test_lm_evals_own_vote_sees_all_rollouts(reader: Reader) -> None:
    for row in reader.samples("picked", "majority"):
        problem = asked(reader, row["doc"]["input"])[-1]
        answers = [extract("math", answer(reader, problem, index)) for index in range(16)]
        assert answers.count(row["filtered_resps"][0]) == max(answers.count(one) for one in answers)


def test_each_is_shown_in_ten_lines() -> None:
    assert len(FILES) == 4
    assert all(len([line for line in text.splitlines() if line]) <= 10 for text in FILES)

"""The lab's agent end to end under the real mini-swe-agent: `radmoe agent demo`, and `radmoe lab agent`."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path

import pytest

from command_line import error, radmoe
from printed_commands import follow
from radmoe_agent.candidates import read_candidates
from radmoe_lab.agent.records import read_trajectories
from radmoe_lab.models import shipped_trajectories
from unpacked import unpack

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    out = tmp_path_factory.mktemp("demo")
    done = radmoe("agent", "demo", "--out", out, "--limit", 5, "-n", 4)
    return out / "n4-s0-5", done.stdout


def test_mini_swe_agent_on_this_machine_makes_the_patches_that_were_sampled_on_a_gpu(demo: tuple[Path, str]) -> None:
    _, trajectories = read_trajectories(shipped_trajectories("lab-agent-qwen"))
    sampled = {(one.repository_id, one.number): one.patch for one in trajectories}
    made = {(name, one.run): one.patch for name, all_ in read_candidates(demo[0] / "runs").items() for one in all_}
    assert len(made) == 20
    equal = sum(sampled[which].strip() == patch.strip() for which, patch in made.items())
    assert equal >= 18  # a rounding may fall on the other side


def test_it_compares_with_what_choosing_stands_on_and_ends_with_the_page(demo: tuple[Path, str]) -> None:
    place, said = demo
    verdicts = [json.loads(line) for line in (place / "verdicts.jsonl").read_text().splitlines()]
    by_issue: dict[str, list[bool]] = {}
    for one in verdicts:
        by_issue.setdefault(one["instance_id"], []).append(one["resolved"])
    mixed = [rights for rights in by_issue.values() if len(set(rights)) == 2]
    assert f"Percent resolved on {len(mixed)} mixed of 5 issues, 20 trajectories" in said
    shown = re.search(r"of all\na random one +([\d.]+)", said)
    assert shown is not None
    assert float(shown[1]) == round(100 * sum(sum(rights) / 4 for rights in mixed) / len(mixed), 1)
    assert "At full size: Percent resolved on 519 mixed of 598 issues, 9,568 trajectories" in " ".join(said.split())
    preds = json.loads((place / "runs" / "preds.json").read_text())
    assert all(one["model_patch"].startswith("diff --git") for one in preds.values())
    page = place / "runs" / "patches.html"
    assert said.rstrip().endswith(f"open {page} in a browser. It says of every issue which patch was picked, and why.")
    stored = dict(re.findall(r'base64" id="([\w-]+)">([^<]*)<', page.read_text()))
    index = unpack(base64.b64decode(stored["index"]))[0]
    assert [one["right"] for one in index["problems"]] == [sum(rights) for rights in by_issue.values()]
    assert [table["key"] for table in index["tables"]] == ["agent-choice", "agent-choice"]


def test_the_commands_it_ends_with_run_in_the_environment_of_make_demo_agent(demo: tuple[Path, str]) -> None:
    assert [call[1:3] for call in follow(demo[1], demo[0], "demo,agent")] == [
        ["agent", "select"],
        ["agent", "evaluate"],
        ["report", str(demo[0] / "runs")],
        ["lab", "agent"],
    ]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("lab-agent")
    done = radmoe("lab", "agent", "--out", out, "--limit", 6)
    assert "6 issues, 96 trajectories" in done.stdout
    return out


def test_shipped_trajectories_become_a_table_by_one_command(made: Path) -> None:
    tables = (made / "results" / "agent.md").read_text()
    for row in ("fewest steps", "overlap of the patches", "RAD + likelihood", "every row", "as many random rows"):
        assert f"| {row} |" in tables
    again = radmoe("lab", "agent", "--out", made, "--limit", 6)
    assert "0 replayed now" in again.stdout


def test_the_study_has_what_a_user_would_have_submitted(made: Path) -> None:
    radmoe("agent", "select", made / "runs", "--method", "rad")
    runs = [json.loads(line) for line in (made / "verdicts.jsonl").read_text().splitlines()]
    resolved = {(one["instance_id"], one["run"]): one["resolved"] for one in runs}
    patches = {(name, one.run): one.patch for name, all_ in read_candidates(made / "runs").items() for one in all_}
    assert "" in patches.values()
    picks = [json.loads(line) for line in (made / "runs" / "records.jsonl").read_text().splitlines()]
    mixed = [one for one in picks if len({resolved[one["instance_id"], run] for run in range(16)}) == 2]
    share = sum(resolved[one["instance_id"], one["run"]] for one in mixed) / len(mixed)
    row = re.search(r"\| RAD among those with a patch \| ([\d.]+) \|", (made / "results" / "agent.md").read_text())
    assert row is not None
    assert float(row[1]) == round(100 * share, 1)


def test_another_model_has_no_trajectories(tmp_path: Path) -> None:
    done = radmoe("lab", "agent", "--model", "lab-oss", "--out", tmp_path, expect=2)
    assert "no trajectories of lab-oss ship" in error(done)

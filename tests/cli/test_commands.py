"""The command line, run as a stranger runs it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib import import_module
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from command_line import error, lines, radmoe
from planted_pools import RECIPE, write_pool
from printed_commands import commands
from radmoe.cli import app
from radmoe.pool import PoolWriter, Profile, open_pool
from radmoe.selection.selector import select
from radmoe.types import Rollout, RouterShape
from radmoe_lab import planted
from radmoe_lab.planted import Planted, PlantedGroup
from text_pools import write_texts

pytestmark = pytest.mark.slow


def test_help_lists_the_commands_and_imports_nothing_heavy() -> None:
    done = radmoe("--help")
    for command in (
        "demo",
        "capture",
        "inspect",
        "verify",
        "merge",
        "delete",
        "select",
        "grade",
        "evaluate",
        "report",
        "audit",
        "doctor",
        "bench",
        "serve",
        "lab",
        "agent",
    ):
        assert command in done.stdout
    code = "import sys, radmoe.cli; print([m for m in ('numpy', 'numba', 'pyarrow', 'blosc2', 'torch') if m in sys.modules])"
    heavy = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert heavy.stdout.strip() == "[]"


@pytest.mark.parametrize("command", [name for name, one in commands().items() if not hasattr(one, "commands")])
def test_help_wraps_its_paragraphs_and_not_its_examples(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERMINAL_WIDTH", "80")
    module = import_module(commands()[command].callback.__module__)
    shown = CliRunner().invoke(app, [*command.split(), "--help"]).stdout
    for line, following in pairwise(line.strip() for line in shown.partition("╭")[0].splitlines()):
        assert not (line and following) or len(f"{line} {following.split()[0]}") > 78, "a line ends before it is full"
    assert "<bool>" not in shown  # a flag takes no value
    lines = [line.strip() for line in shown.splitlines()]
    assert any(example.startswith(f"radmoe {command}") for example in module.EXAMPLES)
    assert [line for line in lines if line in module.EXAMPLES] == list(module.EXAMPLES)
    for example in module.EXAMPLES:
        assert example.startswith("radmoe ")  # a line is a whole command, without what some shells take for arguments
        assert not set("#\\") & set(example)


def test_help_groups_the_commands_under_headings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    headings: dict[str, list[str]] = {}
    for line in radmoe("--help").stdout.splitlines():
        if heading := re.match("╭─ ([A-Z][a-z]+) ─", line):
            headings[heading[1]] = []
        elif command := re.match("│ ([a-z]+) ", line):
            headings[list(headings)[-1]].append(command[1])
    assert list(headings) == ["Options", "Select", "Capture", "Judge", "Serve", "Research"]
    assert headings["Select"] == ["select", "advise", "calibrate"]
    assert headings["Capture"][:2] == ["capture", "replay"]
    assert headings["Serve"] == ["serve", "agent"]
    assert sorted(headings["Research"]) == ["audit", "bench", "demo", "lab", "replicate", "study"]


@pytest.mark.parametrize(
    ("typed", "offered"),
    [("sel", ["select"]), ("lab po", ["pools"]), ("select --pre", ["--preset"]), ("stu", ["study"])],
)
def test_the_shell_completes_commands_and_options(typed: str, offered: list[str]) -> None:
    words = f"radmoe {typed}"
    asked = {"_RADMOE_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
    code = "from radmoe.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=os.environ | asked, check=False
    )
    assert done.stdout.split() == offered, done.stderr


def test_version() -> None:
    from radmoe import __version__

    assert radmoe("--version").stdout.strip() == f"radmoe {__version__}"


def test_inspect_tells_what_is_in_a_pool(shared_pool: Path) -> None:
    facts = json.loads(radmoe("inspect", shared_pool, "--json").stdout)
    pool = open_pool(shared_pool)
    assert (facts["model"], facts["router"]) == ("planted", "12x32 top-4")
    assert (facts["problems"], facts["rollouts"], facts["tokens"]) == (4, 48, pool.tokens)
    assert facts["bytes_per_token"] == pytest.approx(facts["bytes"] / facts["tokens"])
    assert facts["routing_bytes_captured"] == pool.tokens * 12 * 4 * 4
    assert facts["routing_bytes_saved_by_profile"] == 0
    located = sum(int(select(g).located.sum()) for g in pool.groups())
    coverage = {(row["readout"], row["kind"]): row for row in facts["coverage"]}
    assert coverage["delimiter@16", "math"]["located"] == located
    assert coverage["delimiter@16", "code"]["located"] == 0
    text = radmoe("inspect", shared_pool).stdout
    for word in ("planted", "12x32 top-4", "anchor coverage", "bytes per token"):
        assert word in text


def test_inspect_reports_what_a_profile_saved(made: list[PlantedGroup], tmp_path: Path) -> None:
    path = write_pool(tmp_path / "p", made, profile=Profile(layers=(0, 1, 2)))
    facts = json.loads(radmoe("inspect", path, "--json").stdout)
    assert facts["routing_bytes_saved_by_profile"] == pytest.approx(0.75 * facts["routing_bytes_captured"])
    assert "left out" in radmoe("inspect", path).stdout


def test_select_prints_one_object_per_problem(shared_pool: Path) -> None:
    rows = lines(radmoe("select", shared_pool, "--json", "--k", 4))
    assert [row["problem_id"] for row in rows] == open_pool(shared_pool).problems
    for row, group in zip(rows, open_pool(shared_pool).groups(), strict=True):
        expected = select(group, k=4)
        assert row["index"] == row["rollout_index"] == expected.index
        assert row["located"] == expected.located.tolist()
        assert [d is None for d in row["density"]] == np.isnan(expected.density).tolist()
        assert row["density"][row["index"]] == expected.density[expected.index]
        assert row["abstained"] is False
        assert row["basin"] == list(expected.basin)


def test_select_options_reach_the_selector(shared_pool: Path) -> None:
    arguments = ("--readout", "boundary@8", "--kernel", "binary", "--fusion", "ranksum", "--layers", "s0", "--k", 3)
    rows = lines(radmoe("select", shared_pool, "--json", "--jobs", 2, *arguments))
    for row, group in zip(rows, open_pool(shared_pool).groups(), strict=True):
        expected = select(group, readout="boundary@8", kernel="binary", fusion="ranksum", layers="s0", k=3)
        assert (row["index"], row["k"]) == (expected.index, 3)


def test_select_shows_a_table_and_the_text_when_asked(shared_pool: Path) -> None:
    done = radmoe("select", shared_pool, "--problem", "planted-0001", "--text")
    pick = select(open_pool(shared_pool).group("planted-0001")).index
    assert "mean similarity" in done.stdout
    assert f"planted-0001, rollout {pick}" in done.stdout
    assert open_pool(shared_pool).texts("planted-0001")[pick] in done.stdout


def test_select_decodes_the_text_where_none_was_kept(tmp_path: Path) -> None:
    pool = write_texts(tmp_path / "pool", [("p", f"so it is \\boxed{{{i}}}, é") for i in (7, 7, 8)], keep_text=False)
    assert "so it is \\boxed{7}, é" in radmoe("select", pool, "--kind", "math", "--text").stdout


def test_select_writes_a_file_whole_or_not_at_all(shared_pool: Path, tmp_path: Path) -> None:
    radmoe("select", shared_pool, "--out", tmp_path / "picks.jsonl")
    assert len((tmp_path / "picks.jsonl").read_text().splitlines()) == RECIPE.problems
    done = radmoe("select", shared_pool, "--out", "/proc/picks.jsonl", expect=2)
    assert "cannot write /proc/picks.jsonl" in error(done)


def test_code_pools_select_at_the_fence_whether_the_kind_is_recorded_given_or_told(tmp_path: Path) -> None:
    groups = list(planted.groups(Planted(problems=2, rollouts=8, tokens=60, kind="code")))
    recorded = write_pool(tmp_path / "recorded", groups)
    unsaid = write_pool(tmp_path / "unsaid", groups, record_kind=False)
    wanted = [select(m.group, kind="code").index for m in groups]
    for call in ((recorded,), (recorded, "--kind", "code"), (unsaid, "--kind", "code"), (unsaid,)):
        done = radmoe("select", *call, "--json")
        assert [(row["index"], row["kind"]) for row in lines(done)] == [(index, "code") for index in wanted]
        told = "radmoe: kind code: inferred from ``` in" in done.stderr
        assert told == (call == (unsaid,))


def test_a_kind_that_contradicts_the_pool_is_one_line(
    shared_pool: Path, made: list[PlantedGroup], tmp_path: Path
) -> None:
    """Neither the record nor the markers let a pool be read as what it is not."""
    line = error(radmoe("select", shared_pool, "--kind", "code", expect=2))
    assert "records that problem 'planted-0000' is of kind math, --kind code contradicts it" in line
    unsaid = write_pool(tmp_path / "unsaid", made, record_kind=False)
    line = error(radmoe("select", unsaid, "--kind", "code", expect=2))
    assert "```, the marker of kind code, is in 0% of the rollouts, and \\boxed{, that of math, in 9" in line
    assert line.endswith("give --kind math")


def test_the_agent_kind_uses_the_papers_setting(made: list[PlantedGroup], tmp_path: Path) -> None:
    path = write_pool(tmp_path / "unsaid", made, record_kind=False)
    rows = lines(radmoe("select", path, "--kind", "agent", "--json"))
    groups = list(open_pool(path).groups())
    explicit = [select(g, kind="agent", readout="boundary@union", k=4, kernel="binary") for g in groups]
    assert [row["index"] for row in rows] == [pick.index for pick in explicit]
    assert {(row["k"], row["readout"]) for row in rows} == {(4, "boundary@union")}


def test_nothing_selected_anywhere_is_an_error_after_the_rows(shared_pool: Path) -> None:
    done = radmoe("select", shared_pool, "--readout", "delimiter:nobody says this@16", "--json", expect=2)
    assert "no rollout has the anchor of delimiter:nobody says this@16 for kind math" in error(done)
    for row in lines(done):
        assert (row["index"], row["rollout_index"], row["margin"], row["abstained"]) == (None, None, None, True)
        assert row["density"] == [None] * RECIPE.rollouts


def test_merge_puts_parts_together(made: list[PlantedGroup], tmp_path: Path) -> None:
    parts = [write_pool(tmp_path / f"part-{i}", made[2 * i : 2 * i + 2]) for i in range(2)]
    facts = json.loads(radmoe("merge", *parts, "--out", tmp_path / "all", "--json").stdout)
    assert (facts["pools"], facts["problems"], facts["rollouts"]) == (2, 4, 48)
    assert open_pool(tmp_path / "all").problems == [m.group.problem_id for m in made]
    line = error(radmoe("merge", parts[0], parts[0], "--out", tmp_path / "twice", expect=2))
    assert "both hold rollout 0 of problem 'planted-0000'" in line
    assert "grade" in radmoe("merge", *parts, "--out", tmp_path / "again").stdout


def test_delete_takes_problems_out_of_a_pool(pool_path: Path) -> None:
    facts = json.loads(radmoe("delete", pool_path, "planted-0001", "--json").stdout)
    assert facts == {"pool": str(pool_path), "deleted": 12, "problems": 3, "rollouts": 36}
    assert radmoe("delete", pool_path, "planted-0000", "planted-0003").stdout == (
        f"{pool_path}: 24 rollouts deleted; 1 problems, 12 rollouts left\n"
    )
    assert open_pool(pool_path).problems == ["planted-0002"]
    assert "has no problem 'planted-0003'; it has 1, such as 'planted-0002'" in error(
        radmoe("delete", pool_path, "planted-0003", expect=2)
    )


def single(path: Path, rollouts: int) -> Path:
    group = next(planted.groups(Planted(problems=1, rollouts=max(rollouts, 1), tokens=30, seed=1))).group
    with PoolWriter(path, shape=group.shape, vocab=group.vocab, model="few") as writer:
        for rollout in group.rollouts[:rollouts]:
            writer.add("only", rollout)
    return path


def test_pools_of_none_one_and_two_rollouts(tmp_path: Path) -> None:
    assert "holds no rollouts" in error(radmoe("select", single(tmp_path / "0", 0), expect=2))
    one = radmoe("select", single(tmp_path / "1", 1), "--json", expect=2)
    assert "no problem has more than one rollout, and a density needs two: sample more with -n" in one.stderr
    (row,) = lines(radmoe("select", single(tmp_path / "2", 2), "--json"))
    assert (row["index"], row["k"]) == (0, 1)
    radmoe("inspect", tmp_path / "0")
    radmoe("verify", tmp_path / "0")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--readout", "delimiter@0"], "readout width 0 in 'delimiter@0' reads nothing"),
        (["--readout", "foo@16"], "unknown readout family 'foo'"),
        (["--kind", "poetry"], "unknown kind 'poetry'"),
        (["--fusion", "conf50", "--confidence", "me"], "unknown confidence 'me'"),
        (["--kernel", "cosine"], "unknown kernel 'cosine'"),
        (["--fusion", "dc"], "unknown fusion 'dc'"),
        (["--k", "0"], "k must be a whole number"),
        (["--layers", "s99"], "unknown layer subset 's99'"),
        (["--problem", "x"], "has no problem 'x'"),
        (["--limit", "0"], "--limit must be at least 1"),
        (["--jobs", "0"], "threads must be at least 1"),
        (["--budget", "0"], "budget must be at least 1"),
    ],
)
def test_bad_options_are_one_line_and_exit_code_two(shared_pool: Path, arguments: list[str], message: str) -> None:
    assert message in error(radmoe("select", shared_pool, *arguments, expect=2))


@pytest.mark.parametrize("command", ["inspect", "verify", "select", "bench"])
def test_no_pool_there_is_one_line_and_exit_code_two(command: str, tmp_path: Path) -> None:
    assert "there is no pool at" in error(radmoe(command, tmp_path / "nowhere", expect=2))


def test_verify_names_the_file_and_the_rollouts(pool_path: Path) -> None:
    assert "every byte as written" in radmoe("verify", pool_path).stdout
    file = pool_path / "token_data_00000" / "moe_topk_expert_weights.float16.b2"
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    done = radmoe("verify", pool_path, expect=2)
    assert "token_data_00000/moe_topk_expert_weights.float16.b2: damaged bytes in chunk 0" in done.stdout
    assert "planted-0000#0" in done.stdout
    assert "1 fault(s)" in error(done)
    (fault,) = json.loads(radmoe("verify", pool_path, "--json", expect=2).stdout)
    assert len(fault["runs"]) == 48


def test_a_killed_capture_is_recovered_by_verify(tmp_path: Path) -> None:
    shape = RouterShape(2, 4, 1)
    writer = PoolWriter(tmp_path / "p", shape=shape, vocab=planted.vocab(), model="killed")
    writer.add("a", Rollout(np.arange(5), np.zeros((5, 2, 1), np.int16)))
    writer.abandon()
    assert "verify --recover" in error(radmoe("inspect", tmp_path / "p", expect=2))
    assert "recovered 1 rollouts" in radmoe("verify", tmp_path / "p", "--recover").stderr
    radmoe("inspect", tmp_path / "p")


def test_bench_times_every_stage(shared_pool: Path) -> None:
    stages = json.loads(radmoe("bench", shared_pool, "--limit", 2, "--json").stdout)
    assert stages.pop("router") == "12x32 top-4"
    assert stages.pop("problems") == 2
    assert len(stages) == 6
    assert all(ms > 0 for ms in stages.values())


def test_a_reader_that_goes_away_ends_the_command_without_a_word(shared_pool: Path) -> None:
    command = f"{sys.executable} -m radmoe select {shared_pool} --json | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (141, "")

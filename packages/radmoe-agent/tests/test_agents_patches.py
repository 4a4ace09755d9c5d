"""One patch per instance, a record that says why, and predictions that SWE-bench reads."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from radmoe.errors import InputError, PoolCorrupt
from radmoe.pool import open_pool
from radmoe.selection.rule import Rule
from radmoe.selection.selector import select
from radmoe_agent.candidates import CANDIDATES, Candidate, read_candidates, write_candidates
from radmoe_agent.patches import PREDS, RECORDS, PatchDecision, decide, decide_all, record, write_predictions
from scripted_agents import SUBMIT, instances, mend, run_script, step

SCRIPT = {
    "one": [[mend(""), step(SUBMIT)], [step("cat sums.py"), mend(" + 0"), step(SUBMIT)], [mend(""), step(SUBMIT)]],
    "two": [[step(SUBMIT)], [step(SUBMIT)], [mend(" - 1"), step(SUBMIT)]],
    "three": [[step(SUBMIT)], [step(SUBMIT)], [step(SUBMIT)]],
}
SECOND_FILE = "diff --git a/none.py b/none.py\n--- a/none.py\n+++ b/none.py\n@@ -1 +1 @@\n-a\n+b\n"
BINARY_FILE = (
    "diff --git a/bin b/bin\nnew file mode 100644\nindex 0000000..ce542ef\nBinary files /dev/null and b/bin differ\n"
)


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("patches") / "out"
    run_script(path, SCRIPT)
    return path


def decisions(out: Path, **options: object) -> dict[str, PatchDecision]:
    return {one.instance_id: one for one in decide_all(out, **options)}  # type: ignore[arg-type]


@pytest.mark.slow
def test_the_densest_candidate_wins_and_the_record_says_why(out: Path) -> None:
    one = decisions(out, method="rad")["one"]
    picked = select(open_pool(out / "pool").group("one"))
    assert one.run == picked.rollout_index == 0  # 0 and 2 are the same: ties go to the lower
    assert one.patch == read_candidates(out)["one"][0].patch
    assert one.why.startswith("its routing is the densest of 3: ")
    assert one.selection is not None
    assert (one.selection.readout, one.selection.kernel, one.selection.k) == ("boundary@union", "binary", 2)
    assert picked.to_dict().items() <= record(one).items()
    first, second, third = one.candidates
    assert first.density == pytest.approx(picked.density[0])
    assert first.neighbours[0] == 2
    assert third.neighbours[0] == 0
    assert (second.steps, second.boundaries, second.steps_without_boundary) == (3, 3, 0)
    assert second.patch_lines == 2
    assert second.fired is not None
    assert second.fired >= 3 * 4  # layers by experts of one row, at least
    assert first.patch_sha256 == third.patch_sha256 != second.patch_sha256


def test_an_instance_with_one_patch_gets_it_and_one_with_none_an_empty_one(out: Path) -> None:
    made = decisions(out)
    assert (made["two"].run, made["two"].why) == (2, "no other trajectory can be submitted")
    assert [one.problem for one in made["two"].candidates][:2] == ["its patch is empty (it ended with Submitted)"] * 2
    assert (made["three"].run, made["three"].patch) == (None, "")
    assert made["three"].why == "no trajectory can be submitted: the patch is empty"


def test_every_method_chooses_among_those_that_can_be_submitted(out: Path) -> None:
    for method in ("rad", "patch-overlap", "patch-overlap+rad"):
        made = decisions(out, method=method)
        assert made["two"].run == 2
        assert made["three"].run is None
        assert made["one"].run == int(np.argmax([one.score for one in made["one"].candidates]))
        assert record(made["one"])["method"] == method
    with pytest.raises(InputError, match="unknown method 'best': use rad, patch-overlap, likelihood, or some of them"):
        next(decide_all(out, method="best"))
    with pytest.raises(InputError, match="pool keeps no log-probabilities, which likelihood reads"):
        next(decide_all(out, method="rad+likelihood"))


def test_equal_patches_are_grouped_and_counted(out: Path) -> None:
    one = decisions(out)["one"]
    assert [c.same for c in one.candidates] == [(0, 2), (1,), (0, 2)]
    assert one.run == 0
    words = "its patch has most in common with the others: an overlap of 0.95 on average, against 0.89 for the best of another patch"
    assert one.why == f"{words}; 2 of the 3 that can be submitted left this patch"
    assert [c.same for c in decisions(out)["two"].candidates] == [(), (), (2,)]


def test_a_pick_among_equally_good_patches_is_said_to_be_the_first_of_them() -> None:
    members = [Candidate("one", run, patch=f"+    return {run}\n") for run in range(4)]
    made = decide("one", members, None, Rule().settle("agent"), "tiny")
    assert made.run == 0
    said = "it is the first of 4 patches that are equally good; none of the other 3 that can be submitted left the same patch"
    assert made.why.endswith(f"; {said}")
    same = [*members, replace(members[1], run=4)]
    assert "equally good" not in decide("one", same, None, Rule().settle("agent"), "tiny").why


def test_routing_that_cannot_be_read_costs_its_trajectory_alone(out: Path) -> None:
    whole = open_pool(out / "pool").group("one")
    setting = Rule().settle("agent")
    members = read_candidates(out)["one"]

    class Damaged:
        """A stored trajectory whose rows cannot be read."""

        def __getattr__(self, name: str) -> object:
            raise PoolCorrupt(f"the column {name} is damaged")

        def __len__(self) -> int:
            return 5

    broken = replace(whole, kind="agent", rollouts=[whole.rollouts[0], whole.rollouts[1], Damaged()])
    for method in ("rad", "patch-overlap", "likelihood"):
        made = decide("one", members, broken, setting, "tiny", method=method)
        assert made.run in (0, 1)
        assert [one.density is None for one in made.candidates] == [False, False, True]
        assert made.candidates[2].notes[-1].startswith("its routing cannot be read (the column")
        assert made.candidates[2].steps is None
    assert decide("one", members, broken, setting, "tiny").candidates[2].overlap == pytest.approx(0.9457, abs=1e-3)


@pytest.mark.slow
def test_predictions_pass_the_loader_of_swe_bench(out: Path, tmp_path: Path) -> None:
    made = list(decide_all(out, threads=2))
    assert list(map(record, made)) == list(map(record, decide_all(out)))
    write_predictions(made, tmp_path / PREDS, tmp_path / RECORDS)
    from swebench.harness.utils import get_predictions_from_file

    preds = {row["instance_id"]: row for row in get_predictions_from_file(str(tmp_path / PREDS), "none", "test")}
    assert set(preds) == set(SCRIPT)
    assert preds["three"]["model_patch"] == ""
    assert preds["one"]["model_patch"].startswith("diff --git a/sums.py b/sums.py")
    assert preds["one"]["model_name_or_path"] == "tiny"
    rows = [json.loads(line) for line in (tmp_path / RECORDS).read_text().splitlines()]
    assert rows == json.loads(json.dumps([record(one) for one in made]))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda patch: patch.replace("sum(xs) + 1", "gone"), "patch failed: sums.py:1"),
        (lambda patch: patch + SECOND_FILE, "none.py: No such file or directory"),
        (lambda patch: patch + BINARY_FILE, "cannot apply binary patch to 'bin' without full index line"),
    ],
    ids=["whole", "in part", "binary"],
)
def test_a_patch_that_does_not_apply_is_not_submitted(
    out: Path, tmp_path: Path, change: Callable[[str], str], said: str
) -> None:
    """Also one of which a part applies, and one that has a binary file as git shows it: without its bytes."""
    listed = read_candidates(out)
    cut = [replace(one, patch=change(one.patch)) if one.run == 0 else one for one in listed["one"]]
    (tmp_path / "pool").symlink_to(out / "pool")
    write_candidates(tmp_path, [*cut, *listed["two"], *listed["three"]])
    made = {one.instance_id: one for one in decide_all(tmp_path, instances=instances(*SCRIPT))}
    assert made["one"].run == 1
    assert made["one"].candidates[0].problem == f"its patch does not apply (error: {said})"
    assert [one.problem for one in made["one"].candidates[1:]] == [None, None]
    assert made["two"].run == 2


def test_one_that_outgrew_the_context_leaves_where_another_can_be_submitted(out: Path, tmp_path: Path) -> None:
    listed = read_candidates(out)
    over = {name: [replace(one, status="ContextExceeded") for one in members] for name, members in listed.items()}
    (tmp_path / "pool").symlink_to(out / "pool")
    write_candidates(tmp_path, [*over["one"][:2], *listed["one"][2:], *over["two"], *listed["three"]])
    made = decisions(tmp_path)
    assert made["one"].run == 2
    said = "it outgrew the context before it was done (it ended with ContextExceeded)"
    assert [one.problem for one in made["one"].candidates] == [said, said, None]
    assert made["two"].run == 2
    assert (made["two"].candidates[2].problem, made["two"].candidates[2].notes) == (None, (said,))


def test_steps_without_a_boundary_can_be_read_at_their_first_row(tmp_path: Path) -> None:
    bare = "```mswea_bash_command\nsed -i 's/ + 1//' sums.py\n```"
    run_script(tmp_path, {"one": [[bare, step(SUBMIT)], [bare, step(SUBMIT)], [bare, SUBMIT, bare, step(SUBMIT)]]})
    pool = open_pool(tmp_path / "pool")
    assert [np.size(rollout.positions) for rollout in pool.group("one").rollouts] == [2, 2, 4]
    plain, both = (
        decisions(tmp_path, rule=Rule(readout=readout))["one"] for readout in ("boundary@union", "step@union")
    )
    assert [one.steps_without_boundary for one in plain.candidates] == [1, 1, 3]
    assert [one.boundaries for one in plain.candidates] == [1, 1, 1]
    assert all((a.fired or 0) < (b.fired or 0) for a, b in zip(plain.candidates, both.candidates, strict=True))


@pytest.mark.slow
def test_without_any_boundary_the_first_usable_candidate_is_taken(tmp_path: Path) -> None:
    bare = "```mswea_bash_command\nsed -i 's/ + 1//' sums.py\n```"
    submit = f"```mswea_bash_command\n{SUBMIT}\n```"
    run_script(tmp_path, {"one": [[submit], [bare, submit], [bare, submit]]})
    one = decisions(tmp_path, method="rad")["one"]
    assert (one.run, one.why) == (
        1,
        "fewer than two of 2 trajectories have boundary@union: it is the first that can be submitted",
    )
    read = decisions(tmp_path, method="rad", rule=Rule(readout="step@union"))["one"]
    assert read.why == "all 2 trajectories that can be submitted left this patch"
    assert read.candidates[1].density is not None


def test_a_selection_does_not_depend_on_the_order_of_other_candidates(out: Path) -> None:
    usable = [i for i, one in enumerate(decisions(out)["one"].candidates) if one.density is not None]
    values = np.array([one.density for one in decisions(out)["one"].candidates])
    assert usable == [0, 1, 2]
    assert values[0] == pytest.approx(values[2])


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (None, f"has no {CANDIDATES}: give a directory that radmoe agent run or radmoe agent import wrote"),
        ("{}", "line 1 is no candidate"),
        ('{"instance_id": "a", "run": 0, "patch": "", "x": 1}', "line 1 is no candidate"),
        ('{"instance_id": "a", "run": 0, "patch": ""}\n' * 2, "line 2: run 0 of 'a' is listed twice"),
        ('{"instance_id": "a", "run": 0, "patch": "", "notes": 5}', "line 1 is no candidate"),
        ('{"instance_id": "a", "run": 0, "patch": "", "notes": [5]}', "line 1 is no candidate"),
        ('{"instance_id": "a", "run": true, "patch": ""}', "line 1 is no candidate"),
        ('{"instance_id": "a", "run": -1, "patch": ""}', "line 1 is no candidate"),
        ('{"instance_id": "a", "run": 0, "patch": "", "model": {}}', "line 1 is no candidate"),
    ],
)
def test_a_broken_list_of_candidates_is_one_line(tmp_path: Path, lines: str | None, message: str) -> None:
    if lines is not None:
        (tmp_path / CANDIDATES).write_text(lines)
    with pytest.raises(InputError, match=message):
        read_candidates(tmp_path)


@pytest.mark.slow
def test_a_long_list_of_candidates_is_read_in_time(tmp_path: Path) -> None:
    """Each line was compared with all before it: 30,000 of one instance took minutes."""
    write_candidates(tmp_path, [Candidate("a", run) for run in range(30_000)])
    began = time.monotonic()
    assert len(read_candidates(tmp_path)["a"]) == 30_000
    assert time.monotonic() - began < 30


def test_half_a_character_in_a_patch_costs_no_other(out: Path, tmp_path: Path) -> None:
    shutil.copytree(out, tmp_path / "out")
    listed = read_candidates(out)
    listed["two"] = [replace(one, patch=f"{one.patch}\ud800") for one in listed["two"]]
    write_candidates(tmp_path / "out", [one for members in listed.values() for one in members])
    theirs = decisions(tmp_path / "out")
    assert record(theirs["one"]) == record(decisions(out)["one"])
    assert theirs["two"].candidates[2].patch_bytes == decisions(out)["two"].candidates[2].patch_bytes + 3
    write_predictions(theirs.values(), tmp_path / PREDS)
    assert json.loads((tmp_path / PREDS).read_bytes())["two"]["model_patch"].endswith("\ud800")


def test_candidates_are_read_as_they_were_written(tmp_path: Path) -> None:
    written = [Candidate("a", 1, "Submitted", "é\n", "m", None, ("note",)), Candidate("a", 0, problem="lost")]
    write_candidates(tmp_path, written)
    assert read_candidates(tmp_path) == {"a": written[::-1]}

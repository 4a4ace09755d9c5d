"""Packing: every rollout is graded as a pool's would be, and the manifest says what was sampled and what came out."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from radmoe.errors import InputError
from radmoe_lab.archive.files import MANIFEST, ArchiveError, open_archive
from radmoe_lab.archive.pack import main, pack
from radmoe_lab.models import weights
from radmoe_lab.sample import checksums, read_sampled, write_sampled

pytestmark = pytest.mark.slow

NAME = "lab-qwen-thinking"


def resampled(sampled: Path, out: Path, **settings: Any) -> Path:
    """A copy of a file of rollouts whose header says other settings."""
    rollouts = read_sampled(sampled)
    header = rollouts.header | {"settings": rollouts.header["settings"] | settings}
    write_sampled(out, replace(rollouts, header=header))
    return out


def test_everything_that_was_sampled_is_there(sampled: Path, archive_path: Path) -> None:
    before, after = read_sampled(sampled), open_archive(archive_path).read(NAME)
    assert list(after.tasks) == list(before.tasks) == ["math-1", "code", "explain"]
    for task, rollouts in before.tasks.items():
        packed = after.tasks[task]
        assert np.array_equal(packed.tokens, rollouts.tokens)
        assert np.array_equal(packed.lengths, rollouts.lengths)
        assert np.array_equal(packed.finish_reasons, rollouts.finish_reasons)
        assert np.allclose(packed.logprobs, rollouts.logprobs, rtol=1e-6)
        flat = np.concatenate([tokens for problem in range(3) for tokens in packed.rollouts(problem)])
        assert np.array_equal(flat, rollouts.tokens)
        assert [len(tokens) for tokens in packed.rollouts(1)] == rollouts.lengths[1].tolist()
    assert np.array_equal(after.expert_ids, np.sort(before.expert_ids, -1))


def test_the_manifest_says_how_it_was_sampled_and_what_came_out(sampled: Path, archive_path: Path) -> None:
    entry, packed = open_archive(archive_path).configurations[NAME], open_archive(archive_path).read(NAME)
    header = read_sampled(sampled).header
    assert entry["checkpoint"] == checksums(weights("lab-qwen"))
    assert (entry["sampling"], entry["n"], entry["command"]) == (header["settings"]["sampling"], 4, header["command"])
    assert entry["bytes"] == (archive_path / f"{NAME}.npz.xz").stat().st_size
    for task, counts in entry["tasks"].items():
        rollouts = packed.tasks[task]
        assert counts == {
            "problems": 3,
            "rollouts": 12,
            "tokens": len(rollouts.tokens),
            "right": int(rollouts.correct.sum()),
        }
    right = {task: counts["right"] for task, counts in entry["tasks"].items()}
    assert 0 < right["math-1"] < 12  # some of each: labels are not all one


def test_another_configuration_is_packed_beside_the_first(sampled: Path, archive_path: Path, tmp_path: Path) -> None:
    pack([sampled], tmp_path / "a")
    other = resampled(sampled, tmp_path / "other.npz", style="instruct")
    pack([other], tmp_path / "a")
    archive = open_archive(tmp_path / "a")
    assert list(archive.configurations) == [NAME, "lab-qwen-instruct"]  # the order of the models and their styles
    first = archive_path / f"{NAME}.npz.xz"
    assert (tmp_path / "a" / first.name).read_bytes() == first.read_bytes()  # packing is a function of its input
    assert archive.read("lab-qwen-instruct").tasks.keys() == archive.read(NAME).tasks.keys()


def part(sampled: Path, out: Path, tasks: list[str], **settings: Any) -> Path:
    """A copy of a file of rollouts with some of its tasks alone."""
    rollouts = read_sampled(sampled)
    problems = {task: rollouts.header["settings"]["problems"][task] for task in tasks}
    header = rollouts.header | {"settings": rollouts.header["settings"] | {"problems": problems} | settings}
    some = {task: rollouts.tasks[task] for task in tasks}
    ids = rollouts.expert_ids  # of the first problem, so those of another file are of another length
    if tasks[0] != next(iter(rollouts.tasks)):
        ids = np.zeros((int(some[tasks[0]].lengths[0].sum()), *ids.shape[1:]), ids.dtype)
    write_sampled(out, replace(rollouts, header=header, tasks=some, expert_ids=ids))
    return out


def test_two_files_of_one_configuration_are_joined(sampled: Path, archive_path: Path, tmp_path: Path) -> None:
    first = part(sampled, tmp_path / "a.npz", ["math-1", "code"])
    pack([first, part(sampled, tmp_path / "b.npz", ["explain"])], tmp_path / "a")
    joined, whole = open_archive(tmp_path / "a"), open_archive(archive_path)
    assert joined.configurations[NAME]["sha256"] == whole.configurations[NAME]["sha256"]
    assert joined.configurations[NAME]["tasks"] == whole.configurations[NAME]["tasks"]
    command = read_sampled(sampled).header["command"]
    assert joined.configurations[NAME]["command"] == f"{command} && {command}"


@pytest.mark.parametrize(("tasks", "settings"), [(["math-1"], {}), (["explain"], {"n": 5})])
def test_files_of_one_configuration_with_a_task_in_both_or_other_settings_are_refused(
    tasks: list[str], settings: dict[str, Any], sampled: Path, tmp_path: Path
) -> None:
    first = part(sampled, tmp_path / "a.npz", ["math-1", "code"])
    other = part(sampled, tmp_path / "b.npz", tasks, **settings)
    with pytest.raises(InputError, match=r"b\.npz is of the same configuration as another of the files"):
        pack([first, other], tmp_path / "a")
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize("file", ["model.safetensors", "tokenizer.json"])
def test_rollouts_of_other_weights_or_another_tokenizer_are_refused(file: str, sampled: Path, tmp_path: Path) -> None:
    sums = checksums(weights("lab-qwen")) | {file: "0" * 64}
    other = resampled(sampled, tmp_path / "other.npz", checkpoint=sums)
    with pytest.raises(ArchiveError, match=f"^{file} of lab-qwen is not the one that sampled"):
        pack([other], tmp_path / "a")
    assert not (tmp_path / "a").exists()


def test_the_command_packs_and_says_how_much(sampled: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main([str(sampled), "--out", str(tmp_path / "a"), "--jobs", "1"])
    graded, total = capsys.readouterr().out.splitlines()
    assert graded.startswith(f"{NAME}: 36 rollouts graded, ")
    assert total.endswith(f"1 configurations in {(tmp_path / 'a' / f'{NAME}.npz.xz').stat().st_size:,} bytes")
    assert json.loads((tmp_path / "a" / MANIFEST).read_text())["format"] == 1


def test_a_file_that_holds_no_rollouts_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.npz").write_text("nothing")
    with pytest.raises(SystemExit) as exit_:
        main([str(tmp_path / "x.npz"), "--out", str(tmp_path / "a")])
    assert exit_.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "x.npz holds no rollouts that can be read" in line

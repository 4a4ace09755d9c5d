"""Rollouts of a captured pool, written out as each framework writes them and imported, are the same rollouts and the same picks."""

from __future__ import annotations

import hashlib
import json
import lzma
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import framework_files as files
from command_line import lines, radmoe
from framework_files import Sequence
from radmoe import Rollout, RolloutGroup, open_pool, select
from radmoe.grading.labels import read_labels
from radmoe_integrations.imports.work import ImportWork, import_rollouts

FORMS = ("slime", "slime arrays", "verl", "verl dict", "prime-rl", "vllm", "sglang")
TOP = ("prime-rl", "vllm", "sglang")  # formats that carry the largest log-probabilities
DATA = Path(__file__).parents[3] / "tests/data/frameworks"


@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("captured") / "pool"
    radmoe("capture", "--model", "lab-qwen", "--task", "math-2", "-n", 6, "--limit", 3, "--seed", 3, "--out", path)
    return path


@pytest.fixture(scope="module")
def every(captured: Path) -> list[Sequence]:
    return files.sequences(captured)


def brought_in(form: str, source: Path, out: Path, **options: object) -> Path:
    import_rollouts(ImportWork(form, [source], "lab-qwen", kind="math", **options), out)  # type: ignore[arg-type]
    return out


def ids_only(group: RolloutGroup) -> RolloutGroup:
    return replace(group, rollouts=[Rollout(one.token_ids, one.rows(0, len(one))[0]) for one in group.rollouts])


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_an_import_gives_the_captured_rollouts_and_the_same_picks(
    form: str, captured: Path, every: list[Sequence], tmp_path: Path
) -> None:
    out = brought_in(form.split()[0], files.write(form, tmp_path, every), tmp_path / "pool")
    before, after = open_pool(captured), open_pool(out)
    assert not list(after.verify())
    names = dict(zip(before.problems, map(str, range(3)) if form.startswith("slime") else before.problems, strict=True))
    assert after.problems == list(names.values())
    for problem, name in names.items():
        old, new = before.group(problem), after.group(name)
        for a, b in zip(old.rollouts, new.rollouts, strict=True):
            assert np.array_equal(a.token_ids, b.token_ids)
            assert np.array_equal(a.rows(0, len(a))[0], b.rows(0, len(b))[0])
            assert np.array_equal(a.sampled_logprobs, b.sampled_logprobs)
            if form in TOP:
                assert np.array_equal(a.topk_logprobs, b.topk_logprobs)
        if not form.startswith("verl"):  # it does not say how a rollout ended, so that its end token stays in the text
            assert before.texts(problem) == after.texts(name)
        mine, other = (read_labels(path)[one] for path, one in ((captured, problem), (out, name)))
        assert [one.correct for one in mine.values()] == [one.correct for one in other.values()]
        same = [[a.answer == b.answer for b in labels.values()] for labels in (mine, other) for a in labels.values()]
        assert same[: len(same) // 2] == same[len(same) // 2 :]  # who votes with whom
        for preset in ("paper", "strict"):
            assert select(ids_only(old), preset=preset).index == select(new, preset=preset).index


@pytest.mark.slow
def test_the_command_says_what_it_did_and_goes_on_where_it_was(every: list[Sequence], tmp_path: Path) -> None:
    source, out = files.write("vllm", tmp_path, every), tmp_path / "pool"
    call = ("import", "vllm", source, "--model", "lab-qwen", "--kind", "math", "--out", out)
    said = radmoe(*call).stdout.splitlines()
    right = int(sum(one.reward for one in every))
    assert said[0] == f"{out}: 3 problems, 18 rollouts, 18 imported now; {right} of 18 right by their rewards"
    assert said[1].startswith("alignment: 100.0% of expert sets agree at the token where two rollouts of a prompt part")
    (again,) = lines(radmoe(*call, "--json"))
    assert (again["rollouts"], again["imported"], again["labelled"]) == (18, 0, 18)
    radmoe("select", out)
    radmoe("evaluate", out)


@pytest.mark.slow
def test_an_interrupted_import_goes_on(every: list[Sequence], tmp_path: Path) -> None:
    source, out = files.write("slime", tmp_path, every), tmp_path / "pool"

    def stop(done: int, of: int | None) -> None:
        if done == 7:
            raise KeyboardInterrupt

    work = ImportWork("slime", [source], "lab-qwen", kind="math")
    with pytest.raises(KeyboardInterrupt):
        import_rollouts(work, out, progress=stop)
    done = import_rollouts(work, out)
    assert (done.rollouts, done.imported) == (18, 11)
    assert not list(open_pool(out).verify())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("form", "name"),
    [("slime", "rollout_0.pt"), ("verl", "gen_batch.dp"), ("verl", "tq_batch.pt"), ("prime-rl", "responses.jsonl")],
)
def test_files_that_the_frameworks_wrote_themselves_hold_the_same_rollouts(
    form: str, name: str, tmp_path: Path
) -> None:
    """By slime 624b824, verl 0.9.1 with tensordict 0.10.0, and prime-rl 559b447: tests/support/made_by_frameworks.py."""
    source = tmp_path / name
    source.write_bytes(lzma.decompress((DATA / f"{name}.xz").read_bytes()))
    pool, digest = open_pool(brought_in(form, source, tmp_path / "pool")), hashlib.sha256()
    for group in pool.groups():
        for rollout in group.rollouts:
            digest.update(rollout.token_ids.tobytes() + rollout.rows(0, len(rollout))[0].tobytes())
            assert rollout.sampled_logprobs is not None
    assert (len(pool.problems), len(pool)) == (2, 6)
    assert sum(label.correct for own in read_labels(pool.path).values() for label in own.values()) == 3
    assert digest.hexdigest() == json.loads((DATA / "sha256.json").read_text())


@pytest.mark.slow
def test_routing_that_a_real_vllm_sent_is_that_of_a_replay(tmp_path: Path) -> None:
    """Responses of `vllm serve` 0.30.0 on a CPU in float32, and a pass of the same model by transformers."""
    source = tmp_path / "vllm.jsonl"
    source.write_bytes(lzma.decompress((DATA / "vllm.jsonl.xz").read_bytes()))
    pool = brought_in("vllm", source, tmp_path / "pool")
    assert (len(open_pool(pool).problems), len(open_pool(pool))) == (2, 6)
    (done,) = lines(radmoe("replay", pool, "--model", "lab-qwen", "--out", tmp_path / "again", "--json"))
    assert done["agreement"]["of"] == 360 * 11
    assert done["agreement"]["same"] >= 0.999 * done["agreement"]["of"]


@pytest.mark.slow
@pytest.mark.parametrize("form", ["vllm", "prime-rl", "sglang"])
def test_rows_from_a_later_position_on_are_those_of_the_same_tokens(
    form: str, captured: Path, every: list[Sequence], tmp_path: Path
) -> None:
    """routed_experts_prompt_start, routed_experts_start_len: the prompt's rows are left out, all but its last."""
    start = {one.problem: len(one.prompt) - 1 for one in every}
    groups = files.groups(every)
    if form == "sglang":
        made = [files.sglang_line(one, start=start[one.problem]) for one in every]
    else:
        line = files.vllm_line if form == "vllm" else files.prime_line
        made = [line(members, start=start[members[0].problem]) for members in groups]
    pool = open_pool(brought_in(form, files.write_lines(tmp_path / "rows.jsonl", made), tmp_path / "pool"))
    for a, b in zip(open_pool(captured).groups(), pool.groups(), strict=True):
        for old, new in zip(a.rollouts, b.rollouts, strict=True):
            assert np.array_equal(old.rows(0, len(old))[0], new.rows(0, len(new))[0])


@pytest.mark.slow
def test_tokens_of_tools_are_given_and_not_generated(every: list[Sequence], tmp_path: Path) -> None:
    """A loss mask of zeros amid a response makes steps; R of each generated token is the row of the position before it."""
    import torch

    samples = [files.sample(one) for one in every]
    for one in samples:
        one["loss_mask"][5:9] = [0] * 4
    source = tmp_path / "turns.pt"
    torch.save({"rollout_id": 0, "samples": samples}, source)
    pool = open_pool(brought_in("slime", source, tmp_path / "pool"))
    assert not list(pool.verify())
    first, stored = every[0], pool.group("0").rollouts[0]
    kept = [*range(5), *range(9, len(first.tokens))]
    assert stored.token_ids.tolist() == [first.tokens[i] for i in kept]
    assert [(list(step.given), step.start) for step in stored.steps] == [(first.prompt, 0), (first.tokens[5:9], 5)]
    rows = first.rows[[len(first.prompt) - 1 + i for i in kept]]
    assert np.array_equal(stored.rows(0, len(stored))[0], rows)


@pytest.mark.slow
def test_groups_without_a_name_are_those_of_one_prompt(every: list[Sequence], tmp_path: Path) -> None:
    made = [files.vllm_line([one]) for one in every]
    for line in made:
        del line["problem_id"]
    pool = open_pool(brought_in("vllm", files.write_lines(tmp_path / "r.jsonl", made), tmp_path / "pool"))
    assert [len(pool.rollout_indices(problem)) for problem in pool.problems] == [6, 6, 6]
    assert all(problem.startswith("prompt-") for problem in pool.problems)


@pytest.mark.slow
def test_rewards_of_any_size_become_labels_by_a_threshold(every: list[Sequence], tmp_path: Path) -> None:
    source = files.write_slime(tmp_path / "r.pt", [one._replace(reward=one.reward * 0.8 - 0.2) for one in every])
    labels = read_labels(brought_in("slime", source, tmp_path / "pool", threshold=0.5))
    assert sum(one.correct for own in labels.values() for one in own.values()) == sum(one.reward for one in every)


@pytest.mark.slow
def test_what_is_left_out_is_said(every: list[Sequence], tmp_path: Path) -> None:
    """A choice without log-probabilities, one without routing, and a problem of which one rollout remains."""
    made = [files.vllm_line([one]) for one in every[:8]]
    del made[0]["choices"][0]["logprobs"]
    del made[7]["choices"][0]["routed_experts"]
    source, out = files.write_lines(tmp_path / "r.jsonl", made), tmp_path / "pool"
    done = radmoe("import", "vllm", source, "--model", "lab-qwen", "--kind", "math", "--out", out)
    assert [line.removeprefix("radmoe: ") for line in done.stderr.splitlines()] == [
        "1 rollouts are left out: they have no routing: see the section of their server in docs/integrations.md",
        "log-probabilities are left out: not all rollouts have them, or as many for each token",
        "1 problems have one rollout: there is nothing to choose from",
    ]
    assert done.stdout.startswith(f"{out}: 2 problems, 7 rollouts, 7 imported now; ")
    assert not open_pool(out).has_logprobs

"""Rollouts that exist as tokens or texts, replayed into a pool; the agreement with capture is measured."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tiny_moe
from radmoe.engines.base import Sampling
from radmoe.engines.replay import agreement, replay
from radmoe.engines.torch.engine import TransformersEngine
from radmoe.errors import InputError, PoolIncomplete, PoolMismatch
from radmoe.pool import Pool, PoolWriter, Profile, open_pool
from radmoe.selection.selector import select
from radmoe.types import Rollout
from radmoe_lab import planted

PROMPTS = {"a": "So the sum is", "b": "The answer: \\boxed{"}
MARKED = " \\boxed{1"  # every rollout is given an anchor, so that windows have somewhere to be


@pytest.fixture(scope="module")
def engine() -> TransformersEngine:
    return tiny_moe.engine("qwen3-moe")


def capture(engine: TransformersEngine, path: Path, *, ids_only: bool = False, **options: Any) -> Path:
    """A pool with routing as capture writes it."""
    sampling = {"raw": True, "engine": "transformers"}
    keys, prompts = list(PROMPTS), [engine.encode(text, raw=True) for text in PROMPTS.values()]
    record = {"model": "tiny", "task": "sums", "style": "thinking", "sampling": sampling}
    with PoolWriter(path, shape=engine.shape, vocab=engine.vocab, **record, **options) as writer:
        running = engine.generate(prompts, 3, sampling=Sampling(max_tokens=24, seed=2), keys=keys, batch_size=3)
        for c in sorted(running, key=lambda c: c[:2]):
            rollout = c.rollout
            if ids_only:
                rollout = Rollout(
                    rollout.token_ids, rollout.expert_ids, None, rollout.sampled_logprobs, rollout.topk_logprobs
                )
            key = keys[c.prompt_index]
            writer.add(
                key,
                rollout,
                kind="math",
                rollout_index=c.rollout_index,
                problem_index=keys[::-1].index(key),  # "b" was asked first
                text=c.text,
                prompt=PROMPTS[key],
                finish_reason=c.finish_reason,
            )
    return path


@pytest.fixture(scope="module")
def captured(engine: TransformersEngine, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return capture(engine, tmp_path_factory.mktemp("source") / "pool")


def rows(path: Path) -> list[list[Any]]:
    return [[np.sort(r.expert_ids, -1).tolist() for r in group.rollouts] for group in open_pool(path).groups()]


def lines(path: Path, *records: dict[str, Any] | str) -> Path:
    path.write_text("\n".join(r if isinstance(r, str) else json.dumps(r) for r in records) + "\n")
    return path


def test_a_replayed_pool_is_the_captured_one(engine: TransformersEngine, captured: Path, tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    done = replay(captured, engine, tmp_path / "out", progress=lambda *counts: told.append(counts))
    source, made = open_pool(captured), open_pool(tmp_path / "out")
    assert (done.problems, done.rollouts, done.replayed, done.tokens) == (2, 6, 6, source.tokens)
    assert told == [(i, 6) for i in range(1, 7)]
    assert rows(tmp_path / "out") == rows(captured)
    assert (
        str(done.agreement)
        == f"{source.tokens * 3:,} of {source.tokens * 3:,} expert sets agree with the captured ones (100.00%)"
    )
    assert agreement(tmp_path / "out") == done.agreement
    for mine, theirs in zip(made.groups(), source.groups(), strict=True):
        for a, b in zip(mine.rollouts, theirs.rollouts, strict=True):
            assert np.array_equal(a.token_ids, b.token_ids)
            assert np.array_equal(a.topk_logprobs, b.topk_logprobs)  # the sampler's own, not the replay's
    record = made.sampling
    assert (record["engine"], record["tokens"], record["raw"]) == ("replay", "sampled", True)
    assert record["sampled"] == source.sampling
    assert (made.model, made.task, made.style) == (engine.model_name, "sums", "thinking")
    assert made.kinds == source.kinds == {"b": "math", "a": "math"}
    assert all(shard["versions"] == engine.versions for shard in made.provenance.values())
    assert made.texts("a") == source.texts("a")


def test_a_replay_can_be_replayed(engine: TransformersEngine, captured: Path, tmp_path: Path) -> None:
    """It has the prompts, and knows how they were tokenised."""
    replay(captured, engine, tmp_path / "once")
    again = replay(tmp_path / "once", engine, tmp_path / "twice")
    assert again.agreement is not None
    assert again.agreement.share == 1
    assert rows(tmp_path / "twice") == rows(captured)


def test_an_ids_only_pool_gets_weights(engine: TransformersEngine, tmp_path: Path) -> None:
    source = capture(engine, tmp_path / "ids", ids_only=True)
    assert not open_pool(source).has_weights
    done = replay(source, engine, tmp_path / "out")
    assert open_pool(tmp_path / "out").has_weights
    assert done.agreement is not None
    assert done.agreement.share == 1
    replay(source, engine, tmp_path / "ids-again", weights=False)
    assert not open_pool(tmp_path / "ids-again").has_weights


def test_routing_that_disagrees_is_counted(engine: TransformersEngine, captured: Path, tmp_path: Path) -> None:
    """One layer of three captured with its experts renamed: a third of the sets cannot agree."""
    source, wrong = open_pool(captured), tmp_path / "wrong"
    record = {"model": "tiny", "sampling": source.sampling}
    with PoolWriter(wrong, shape=engine.shape, vocab=engine.vocab, **record) as writer:
        for r in source.group("a").rollouts:
            ids = r.expert_ids.copy()
            ids[:, 1] = (ids[:, 1] + 1) % 8
            writer.add("a", Rollout(r.token_ids, ids, r.weights), prompt=PROMPTS["a"])
    agreed = replay(wrong, engine, tmp_path / "out").agreement
    assert agreed is not None
    assert 2 / 3 <= agreed.share < 0.8


def test_bfloat16_replay_of_float32_capture_agrees_in_part(captured: Path, tmp_path: Path) -> None:
    import torch

    other = TransformersEngine(tiny_moe.model("qwen3-moe").to(torch.bfloat16), tokenizer=tiny_moe.tokenizer())
    done = replay(captured, other, tmp_path / "out")
    assert done.agreement is not None
    assert 0.8 < done.agreement.share < 1
    assert open_pool(tmp_path / "out").sampling["dtype"] == "bfloat16"


def test_only_window_rows_are_kept_and_computed(
    engine: TransformersEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = planted.vocab()
    prompt = engine.encode("So", raw=True)
    tokens = [*engine.encode("x = 3" + MARKED + "7}", raw=True), *[40] * 100]
    file = lines(tmp_path / "r.jsonl", {"id": 1, "kind": "math", "prompt_ids": prompt, "token_ids": tokens})
    passes: list[int] = []
    whole = engine.force
    monkeypatch.setattr(
        engine,
        "force",
        lambda prompt, tails, **o: passes.append(len(prompt) + len(tails[0]) - 1) or whole(prompt, tails, **o),
    )
    replay(file, engine, tmp_path / "all")
    replay(file, engine, tmp_path / "part", profile=Profile(readouts=("delimiter@4",)), topk_logprobs=0)
    assert passes[0] == len(prompt) + len(tokens) - 1
    assert passes[1] < passes[0] - 80
    (full,), (part,) = (open_pool(tmp_path / name).group("1").rollouts for name in ("all", "part"))
    assert len(part.positions) == 4
    start, stop = int(part.positions[0]), int(part.positions[-1]) + 1
    for a, b in zip(full.rows(start, stop), part.rows(start, stop), strict=True):
        assert np.array_equal(a, b)
    assert b"boxed" in b"".join(answer.token_bytes(int(t)) for t in part.token_ids[start:stop])


def test_a_windowed_source_is_compared_where_it_has_rows(engine: TransformersEngine, tmp_path: Path) -> None:
    text = "x = 3" + MARKED + "7} and so on and on"
    file = lines(tmp_path / "r.jsonl", {"id": 1, "prompt": "So", "text": text}, {"id": 1, "prompt": "So", "text": "no"})
    profile = Profile(layers=(0, 2), readouts=("delimiter@4",))
    replay(file, engine, tmp_path / "source", raw=True, kind="math", profile=profile)
    agreed = replay(tmp_path / "source", engine, tmp_path / "out").agreement
    assert agreed is not None
    assert (agreed.same, agreed.of) == (4 * 2, 4 * 2)  # the second rollout has no anchor, and no rows
    narrower = replay(tmp_path / "source", engine, tmp_path / "less", profile=Profile(layers=(2,))).agreement
    assert narrower == agreed  # all layers are computed, whatever is kept


def test_log_probabilities_are_kept_where_the_source_has_none(
    engine: TransformersEngine, captured: Path, tmp_path: Path
) -> None:
    source = open_pool(captured)
    rollouts = [
        {"id": p, "kind": "math", "prompt_ids": engine.encode(PROMPTS[p], raw=True), "token_ids": r.token_ids.tolist()}
        for p in source.problems
        for r in source.group(p).rollouts
    ]
    file = lines(tmp_path / "r.jsonl", *rollouts)
    replay(file, engine, tmp_path / "out")
    made = open_pool(tmp_path / "out")
    assert made.sampling["topk_logprobs"] == 20
    for mine, theirs in zip(made.groups(), source.groups(), strict=True):
        for a, b in zip(mine.rollouts, theirs.rollouts, strict=True):
            assert np.allclose(a.sampled_logprobs, b.sampled_logprobs, atol=1e-3)
            assert np.allclose(a.topk_logprobs, b.topk_logprobs, atol=2e-2)  # float16
    assert select(made.group("a"), readout="trajectory:/./@4", fusion="conf50").index in range(3)
    replay(file, engine, tmp_path / "none", topk_logprobs=0)
    assert not open_pool(tmp_path / "none").has_logprobs


def test_an_interrupted_replay_goes_on(engine: TransformersEngine, captured: Path, tmp_path: Path) -> None:
    def stop(done: int, total: int) -> None:
        if done == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        replay(captured, engine, tmp_path / "out", progress=stop)
    with pytest.raises(PoolIncomplete, match="4 rollouts are safe"):
        open_pool(tmp_path / "out")
    done = replay(captured, engine, tmp_path / "out")
    assert (done.rollouts, done.replayed) == (6, 2)
    assert rows(tmp_path / "out") == rows(captured)
    assert replay(captured, engine, tmp_path / "out").replayed == 0
    assert len(Pool.recover(tmp_path / "out")) == 6


def test_another_source_is_another_pool(engine: TransformersEngine, captured: Path, tmp_path: Path) -> None:
    one = {"id": "a", "prompt": "So", "text": "so it is"}
    replay(lines(tmp_path / "1.jsonl", one), engine, tmp_path / "out")
    with pytest.raises(PoolMismatch, match="source"):
        replay(lines(tmp_path / "2.jsonl", one, one), engine, tmp_path / "out")


def test_a_file_of_texts_and_tokens(engine: TransformersEngine, tmp_path: Path) -> None:
    tokens = engine.encode("so it is 5", raw=True)
    file = lines(
        tmp_path / "r.jsonl",
        {"id": "a", "prompt": "So", "text": "so it is 5"},
        {"problem_id": "b", "prompt_ids": [5, 6], "token_ids": tokens, "finish_reason": "length"},
        "",
        {"id": "a", "prompt": "So", "token_ids": tokens},
    )
    done = replay(file, engine, tmp_path / "out", raw=True)
    pool = open_pool(tmp_path / "out")
    assert (done.problems, done.rollouts, done.agreement) == (2, 3, None)
    assert pool.sampling["tokens"] == "some of them retokenised"
    extras = [json.loads(extra)["tokens"] for extra in pool.runs(["extra"])["extra"].to_pylist()]
    assert sorted(extras) == ["retokenised", "sampled", "sampled"]
    first, second = pool.group("a").rollouts
    assert first.token_ids.tolist() == second.token_ids.tolist() == tokens
    assert np.array_equal(first.expert_ids, second.expert_ids)
    ids, _ = engine.teacher_forced([*engine.encode("So", raw=True), *tokens])
    assert np.array_equal(first.expert_ids, ids[len(engine.encode("So", raw=True)) - 1 : -1])
    assert pool.texts("a") == ["so it is 5", "so it is 5"]


def test_texts_can_be_tokenised_for_another_model(
    engine: TransformersEngine, shared_pool: Path, tmp_path: Path
) -> None:
    """A pool of another tokenizer is refused, and taken by its texts; it kept no prompts here."""
    with pytest.raises(InputError, match="has no prompt"):
        replay(shared_pool, engine, tmp_path / "out")
    other = TransformersEngine(tiny_moe.model("qwen3-moe"), tokenizer=_respelled())
    with pytest.raises(InputError, match="another tokenizer than the model's"):
        replay(shared_pool, other, tmp_path / "other")


def _respelled() -> Any:
    from transformers import PreTrainedTokenizerFast

    made = PreTrainedTokenizerFast(tokenizer_object=planted.tokenizer(), eos_token="<|im_end|>")
    made.add_tokens(["<extra>"])
    return made


def test_retokenised_rollouts_say_so(engine: TransformersEngine, captured: Path, tmp_path: Path) -> None:
    done = replay(captured, engine, tmp_path / "out", retokenise=True)
    assert done.agreement is None  # rows of other tokens cannot be compared
    assert open_pool(tmp_path / "out").sampling["tokens"] == "retokenised"


@pytest.mark.parametrize(
    ("record", "said"),
    [
        ("{", "line 1 is not JSON"),
        ("[1]", r"line 1 is not an object, but \[1\]"),
        ({"prompt": "x", "text": "y"}, "line 1: id .or problem_id. must be a text or a whole number, got None"),
        ({"id": 1, "prompt": "x"}, "has neither token_ids nor text"),
        ({"id": 1, "text": "y"}, "needs prompt_ids, prompt or messages"),
        ({"id": 1, "prompt": "x", "text": ""}, "has no text to tokenise"),
        (
            {"id": 1, "prompt": "x", "token_ids": []},
            r"token_ids must be token ids in \[0, 515\), at least one, got \[\]",
        ),
        ({"id": 1, "prompt": "x", "token_ids": [515]}, r"got \[515\]"),
        ({"id": 1, "prompt_ids": [True], "token_ids": [1]}, "prompt_ids must be token ids"),
        ({"id": 1, "prompt": "x", "token_ids": [7] * 300}, r"\+ 300 tokens and the model's context is 256"),
    ],
)
def test_bad_lines_are_named(engine: TransformersEngine, tmp_path: Path, record: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        replay(lines(tmp_path / "r.jsonl", record), engine, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_bad_line_behind_good_ones_leaves_no_pool(engine: TransformersEngine, tmp_path: Path) -> None:
    """Half a pool could not be gone on with: the mended file is another source."""
    good, bad = {"id": 1, "prompt": "x", "text": "y"}, {"id": 2, "prompt": "x", "text": ""}
    with pytest.raises(InputError, match="line 2 has no text to tokenise"):
        replay(lines(tmp_path / "r.jsonl", good, bad), engine, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_texts_of_a_pool_of_the_first_version_are_replayed_as_its_page_says(
    engine: TransformersEngine, captured: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (Path(__file__).parents[3] / "docs" / "format.md").read_text()
    recipe = page[page.index("## Version 1") :].split("```python\n")[1].split("```")[0]
    (tmp_path / "old").mkdir()
    shutil.copy(captured / "runs.parquet", tmp_path / "old")  # its columns here are those of version 1, and more
    monkeypatch.chdir(tmp_path)
    exec(recipe, {})
    replay(tmp_path / "old.jsonl", engine, tmp_path / "new", raw=True)
    old, new = open_pool(captured), open_pool(tmp_path / "new")
    assert {name: new.texts(name) for name in new.problems} == {name: old.texts(name) for name in old.problems}


def test_what_is_no_source_is_said_to_be(engine: TransformersEngine, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="pass a JSONL file of rollouts"):
        replay(tmp_path / "none", engine, tmp_path / "out")
    (tmp_path / "empty").write_text("\n")
    with pytest.raises(InputError, match="holds no rollouts"):
        replay(tmp_path / "empty", engine, tmp_path / "out")

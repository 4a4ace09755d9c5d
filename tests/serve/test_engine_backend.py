"""A model in the gateway's own process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

MESSAGES = [{"role": "user", "content": "What is 2 plus 3?"}]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    import tiny_moe
    from running_gateway import RunningGateway

    path = tiny_moe.save(tmp_path_factory.mktemp("embedded") / "tiny", chat=True)
    with RunningGateway(model=str(path), threads=1, record=path.parent / "pool") as made:
        yield made


def test_best_of_n_and_plain_requests_are_sampled_here(tiny: Any) -> None:
    answer = tiny.ask(model="tiny#rad-6", max_tokens=12, seed=3).json()
    assert answer["radmoe"]["sampled"]["rollouts"] == 6
    assert answer["radmoe"]["recorded"] is True
    assert answer["usage"]["completion_tokens"] == answer["radmoe"]["sampled"]["tokens"]
    again = tiny.ask(model="tiny#rad-6", max_tokens=12, seed=3).json()
    assert again["choices"] == answer["choices"]
    plain = tiny.ask(model="tiny", n=2, max_tokens=5).json()
    assert len(plain["choices"]) == 2
    assert "radmoe" not in plain
    assert plain["usage"]["completion_tokens"] <= 10


@pytest.mark.slow
def test_rollouts_of_a_seed_are_the_same_in_one_round_and_in_several(tmp_path: Path) -> None:
    """Adaptive requests draw in rounds; rollout i must not depend on the round that drew it."""
    from radmoe.pool import open_pool
    from running_gateway import RunningGateway

    question = (
        r"You have 405. Then multiply by 4. Then decrease it by 301. Give the final number modulo 1000 in \boxed{}."
    )
    asked = {"model": "lab-qwen", "messages": [{"role": "user", "content": question}], "seed": 11, "temperature": 1.2}
    with RunningGateway(model="lab-qwen", threads=1, record=tmp_path / "pool") as made:
        rounds, fixed = (made.ask({"n": 24, "adaptive": adaptive}, **asked).json() for adaptive in (True, False))
    pool = open_pool(tmp_path / "pool")
    drawn, whole = ([r.token_ids.tolist() for r in pool.group(answer["id"]).rollouts] for answer in (rounds, fixed))
    assert len(drawn) > 8  # more than the first round
    assert len({tuple(tokens) for tokens in whole}) > 1
    assert drawn == whole[: len(drawn)]


@pytest.mark.slow
def test_a_shipped_calibration_is_used_as_python_uses_it(tmp_path: Path) -> None:
    from dataclasses import replace

    from radmoe.pool import open_pool
    from radmoe.selection.calibration import find_calibration, origin_of
    from radmoe.selection.selector import select
    from running_gateway import RunningGateway

    question = r"You have 405. Then multiply by 4. Give the final number modulo 1000 in \boxed{}."
    asked = {"model": "lab-qwen", "messages": [{"role": "user", "content": question}], "seed": 5}
    thinking = {"chat_template_kwargs": {"enable_thinking": True}, "temperature": 0.8, "top_p": 1.0}
    with RunningGateway(model="lab-qwen", threads=1, record=tmp_path / "pool") as made:
        answer = made.ask({"n": 8}, **asked, **thinking).json()
        unsaid, hotter = (made.ask({"n": 8}, **asked, **body).json() for body in ({}, thinking | {"temperature": 1.1}))
        adaptive = made.ask({"n": 8, "adaptive": True}, **asked, **thinking).json()
    pool = open_pool(tmp_path / "pool")
    origin = replace(
        origin_of(pool), style="thinking", temperature=0.8, top_p=1.0
    )  # requests of a pool may differ in them
    group = pool.group(answer["id"])
    judged = find_calibration(origin).judge(select(group), group)
    assert judged.probability is not None
    assert answer["radmoe"]["probability"] == judged.probability
    assert answer["radmoe"]["probability_reason"] is None
    for other, why in (
        (unsaid, "style not recorded"),
        (hotter, "temperature 1.1"),
        (adaptive, "until the pick was settled"),
    ):
        assert other["radmoe"]["probability"] is None
        assert "calibrations ship for lab-qwen, style instruct" in other["radmoe"]["probability_reason"]
        assert why in other["radmoe"]["probability_reason"].partition("these rollouts are of")[2]


def test_a_plain_stream_comes_as_chunks(tiny: Any) -> None:
    text = tiny.ask(model="tiny", stream=True, max_tokens=5, seed=1).text
    assert text.count('"finish_reason": null') >= 1
    assert text.endswith("data: [DONE]\n\n")


def test_a_rollout_ends_at_a_stop_text(tiny: Any) -> None:
    body = {"model": "tiny", "prompt": "So the sum is", "max_tokens": 40, "seed": 5}
    whole = tiny.client.post("/v1/completions", json=body).json()
    stop = whole["choices"][0]["text"][10:13]
    cut = tiny.client.post("/v1/completions", json=body | {"stop": [stop]}).json()
    text = whole["choices"][0]["text"]
    assert cut["choices"][0]["text"] == text[: text.find(stop)]
    assert cut["choices"][0]["finish_reason"] == "stop"
    assert cut["usage"]["completion_tokens"] < whole["usage"]["completion_tokens"]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": [{"type": "function"}]}, "tools"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"logprobs": True}, "logprobs"),
        ({"frequency_penalty": 0.5}, "frequency_penalty"),
        ({"temperature": -1}, "temperature"),
        ({"temperature": "hot"}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"seed": "x"}, "seed"),
        ({"stop": [1]}, "stop"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "user"}]}, "messages"),
        ({"messages": [{"role": "user", "content": "\ud800"}]}, "messages"),
        ({"messages": [{"role": "user", "content": "word " * 2000}]}, None),
    ],
)
def test_what_the_model_cannot_do_is_refused_by_name(tiny: Any, fields: Any, param: str | None) -> None:
    answer = tiny.ask(model="tiny#rad-4", **({"max_tokens": 4} | fields))
    assert answer.status_code == 400
    error = tiny.error(answer)
    assert param is None or error["param"] == param


ENDLESS = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"chat_template_kwargs": {"chat_template": ENDLESS}}, "chat_template_kwargs"),
        ({"chat_template_kwargs": {"chat_template": "{{ 'x' * 6000000000 }}"}}, "chat_template_kwargs"),
        ({"chat_template_kwargs": {"tools": []}}, "chat_template_kwargs"),
        ({"chat_template_kwargs": {"tokenizer_kwargs": {}}}, "chat_template_kwargs"),
        ({"chat_template_kwargs": {"continue_final_message": True}}, "chat_template_kwargs"),
        ({"chat_template_kwargs": {"enable_thinking": ["x"]}}, "chat_template_kwargs"),
        ({"chat_template_kwargs": {"enable_thinking": {"chat_template": ENDLESS}}}, "chat_template_kwargs"),
        ({"chat_template_kwargs": {"thinking_budget": 10**300}}, "chat_template_kwargs"),
        ({"chat_template_kwargs": {"model_identity": "x" * 1000}}, "chat_template_kwargs"),
        ({"chat_template_kwargs": ENDLESS}, "chat_template_kwargs"),
        ({"chat_template_kwargs": [1]}, "chat_template_kwargs"),
        ({"reasoning_effort": {"x": 1}}, "reasoning_effort"),
        ({"reasoning_effort": "\ud800"}, "messages"),
        ({"messages": [{"role": "\ud800", "content": "x"}]}, "messages"),
    ],
)
def test_a_client_tells_the_chat_template_named_scalars_and_no_program(tiny: Any, fields: Any, param: str) -> None:
    """A template of the client's own held a thread for good, or took all memory; four of them ended the server."""
    answer = tiny.ask(model="tiny", max_tokens=2, **fields)
    assert (answer.status_code, tiny.error(answer)["param"]) == (400, param)
    assert tiny.error(answer)["code"] == "invalid_value"


def test_what_chat_templates_know_is_passed_to_them(tiny: Any) -> None:
    told = {
        "enable_thinking": False,
        "thinking_budget": 512,
        "model_identity": "You are tiny.",
        "reasoning_effort": None,
    }
    assert tiny.ask(model="tiny", max_tokens=2, chat_template_kwargs=told, reasoning_effort="low").status_code == 200


@pytest.mark.slow
@pytest.mark.parametrize("temperature", [1e308, 1e39, 1e-40, 5e-324])
def test_a_temperature_that_nobody_can_divide_by_fails_its_own_request_alone(tiny: Any, temperature: float) -> None:
    """Such a row failed the batch that all requests share."""
    body = {"model": "tiny#rad-8", "messages": MESSAGES, "max_tokens": 120, "temperature": 1.5, "seed": 4}
    with ThreadPoolExecutor(1) as other:
        honest = other.submit(httpx.post, f"{tiny.url}/v1/chat/completions", json=body, timeout=60)
        while not tiny.client.get("/health").json()["rollouts"] and not honest.done():
            time.sleep(0.005)
        answers = [tiny.ask(model="tiny", max_tokens=2, temperature=temperature) for _ in range(3)]
        assert honest.result().status_code == 200
    for answer in answers:
        assert (answer.status_code, tiny.error(answer)["param"]) == (400, "temperature")


@pytest.mark.parametrize(
    ("path", "prompt"),
    [
        ("chat/completions", {"messages": [{"role": "user", "content": "word " * 700_000}]}),
        ("chat/completions", {"messages": [{"role": "x" * 3_000_000, "content": ""}]}),
        ("chat/completions", {"messages": [{"role": "user", "content": ""}] * 50_000}),
        ("completions", {"prompt": "word " * 700_000}),
        ("completions", {"prompt": ["word " * 700_000]}),
        ("completions", {"prompt": [5] * 250_000}),
    ],
)
def test_a_prompt_that_is_far_too_long_is_refused_before_it_is_tokenised(
    tiny: Any, monkeypatch: pytest.MonkeyPatch, path: str, prompt: Any
) -> None:
    """Eight of 3.9 MB held others up for 100 s."""
    from transformers import PreTrainedTokenizerFast

    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("the tokenizer was asked")

    for name in ("__call__", "_decode", "apply_chat_template"):
        monkeypatch.setattr(PreTrainedTokenizerFast, name, never)
    answer = tiny.client.post(f"/v1/{path}", json={"model": "tiny", "max_tokens": 2} | prompt)
    assert answer.status_code == 400
    error = tiny.error(answer)
    assert error["param"] in ("messages", "prompt")
    assert "shorten" in error["message"]


def test_long_prompts_are_tokenised_one_at_a_time() -> None:
    """They may be within a long context; then others must still find threads."""
    from radmoe.serve import prompt_rendering
    from radmoe.serve.api_request import ApiRequest

    under_way, most = 0, 0

    def slow(ask: ApiRequest, *_: Any) -> Any:
        nonlocal under_way, most
        under_way += ask.size > 1000
        most = max(most, under_way)
        time.sleep(0.02)
        under_way -= ask.size > 1000

    async def main() -> None:
        render = prompt_rendering.Renderer()
        sizes = (1 << 20, 10, 1 << 20, 1 << 20)
        asks = [ApiRequest("chat", "m", {}, 1, False, False, None, size) for size in sizes]
        await asyncio.gather(*(render(ask, None, 0) for ask in asks))  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prompt_rendering, "render", slow)
        asyncio.run(main())
    assert most == 1


@pytest.mark.parametrize("adaptive", [False, True])
def test_rollouts_of_a_client_that_left_are_given_up(tiny: Any, adaptive: bool) -> None:
    body = {"model": "tiny#rad-64", "messages": MESSAGES, "max_tokens": 200, "temperature": 1.5}
    body |= {"radmoe": {"adaptive": adaptive}}
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(f"{tiny.url}/v1/chat/completions", json=body, timeout=httpx.Timeout(20, read=0.05))
    end = time.monotonic() + 20
    while tiny.client.get("/health").json()["rollouts"] and time.monotonic() < end:
        time.sleep(0.02)
    assert tiny.client.get("/health").json()["rollouts"] == 0
    assert tiny.ask(model="tiny", max_tokens=3).status_code == 200


def test_text_parts_are_joined_and_thinking_is_told_apart(tiny: Any) -> None:
    import vocabularies
    from radmoe.serve.prompt_rendering import split_thinking
    from radmoe.vocab import Vocab
    from radmoe_lab import planted

    vocab = Vocab.from_tokenizer(planted.tokenizer())
    assert split_thinking("<think>\nso\n</think>\n\n5", vocab) == ("so", "5")
    assert split_thinking("<think>\nso", vocab) == ("so", "")
    assert split_thinking("5", vocab) == (None, "5")
    harmony = vocabularies.vocab("gpt-oss")
    final = "<|channel|>analysis<|message|>so<|end|><|start|>assistant<|channel|>final<|message|>5"
    assert split_thinking(final, harmony) == ("so", "5")
    parts = [{"role": "user", "content": [{"type": "text", "text": "What is "}, {"type": "text", "text": "2?"}]}]
    assert tiny.ask(model="tiny", messages=parts, max_tokens=3).status_code == 200


def test_the_default_model_is_labs(tmp_path: Path) -> None:
    from radmoe.serve.settings import Settings

    with pytest.raises(ValueError, match="nothing to serve"):
        Settings()

"""Best-of-N through a real gateway before a planted server: what is sampled, what is picked, what the answer says."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from radmoe.selection.selector import select
from radmoe.types import RolloutGroup


def picked(upstream: Any, n: int) -> int:
    """What the library picks from the first n planted rollouts."""
    whole = upstream.made.group
    group = RolloutGroup("it", [upstream._rollout(i) for i in range(n)], whole.shape, whole.vocab)
    index = select(group).index
    assert index is not None
    return index


@pytest.mark.parametrize("asked", ["name", "field"])
def test_the_pick_is_the_librarys_and_comes_first(shared: Any, asked: str) -> None:
    named = {"model": "planted#rad-16"} if asked == "name" else {"model": "planted", "radmoe": {"n": 16}}
    answer = shared.ask(**named).json()
    best = picked(shared.upstream, 16)
    radmoe, (choice,) = answer["radmoe"], answer["choices"]
    assert (radmoe["method"], radmoe["pick"], radmoe["kind"], radmoe["kind_source"]) == ("rad", best, "math", "markers")
    assert choice["index"] == 0
    assert choice["message"]["content"] == shared.upstream.text(best).rpartition("</think>")[2]
    assert radmoe["index"] == best
    assert 0 < radmoe["density"][best] <= 1
    assert best in radmoe["basin"]
    assert radmoe["sampled"]["rollouts"] == 16
    assert answer["usage"]["completion_tokens"] == radmoe["sampled"]["tokens"] > 16 * 20
    assert shared.upstream.bodies[-1]["n"] == 16
    assert "token_ids" not in choice
    assert "radmoe" not in shared.upstream.bodies[-1]
    assert shared.upstream.kept == {}  # the plugin holds nothing back


def test_a_plain_request_passes_through_with_its_own_n(shared: Any) -> None:
    answer = shared.ask(model="planted", n=3, temperature=0.5).json()
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2]
    assert "radmoe" not in answer
    body = shared.upstream.bodies[-1]
    assert (body["n"], body["temperature"]) == (3, 0.5)
    assert "return_token_ids" not in body


def test_the_clients_n_is_the_number_of_choices_returned_the_pick_first(shared: Any) -> None:
    answer = shared.ask(model="planted#rad-16", n=4).json()
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2, 3]
    contents = [choice["message"]["content"] for choice in answer["choices"]]
    assert contents[0] == shared.upstream.text(answer["radmoe"]["pick"]).rpartition("</think>")[2]
    assert answer["radmoe"]["sampled"]["rollouts"] == 16


def test_tools_and_response_format_reach_the_server_untouched_and_calls_come_back(shared: Any) -> None:
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
    shape = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}}
    answer = shared.ask(tools=tools, response_format=shape, tool_choice="auto", vllm_xargs={"own": 1}).json()
    body = shared.upstream.bodies[-1]
    assert (body["tools"], body["response_format"], body["tool_choice"]) == (tools, shape, "auto")
    assert set(body["vllm_xargs"]) == {"own", "radmoe"}
    assert answer["choices"][0]["message"]["tool_calls"][0]["id"] == f"call-{answer['radmoe']['pick']}"


def test_thinking_comes_under_both_names(shared: Any) -> None:
    message = shared.ask().json()["choices"][0]["message"]
    assert message["reasoning"]
    assert message["reasoning"] == message["reasoning_content"]


def test_a_stream_has_progress_as_comments_then_the_pick_as_chunks(gateway: Callable[..., Any], upstream: Any) -> None:
    made = gateway(upstreams=(upstream(delay=0.5).url,))
    whole = made.ask(seed=1).json()
    text = made.ask(seed=1, stream=True, stream_options={"include_usage": True}).text
    comments = [line for line in text.splitlines() if line.startswith(":")]
    events = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
    assert len(comments) >= 3
    assert "sampling 0 of 8 rollouts" in text
    assert text.endswith("data: [DONE]\n\n")
    deltas = [event["choices"][0]["delta"] for event in events if event["choices"]]
    assert deltas[0]["role"] == "assistant"
    message = whole["choices"][0]["message"]
    for name in ("content", "reasoning", "reasoning_content"):
        assert "".join(delta.get(name) or "" for delta in deltas) == message[name]
    ended = next(event for event in events if event["choices"] and event["choices"][0]["finish_reason"])
    assert ended["radmoe"]["pick"] == whole["radmoe"]["pick"]
    assert events[-1]["usage"] == whole["usage"]
    assert {event["object"] for event in events} == {"chat.completion.chunk"}


def test_a_plain_stream_is_the_servers_own(shared: Any) -> None:
    text = shared.ask(model="planted", stream=True).text
    assert text.startswith("data: ")
    assert text.endswith("data: [DONE]\n\n")


def test_completions_take_a_prompt(shared: Any) -> None:
    body = {"model": "planted#rad-8", "prompt": "2 plus 3 is"}
    answer = shared.client.post("/v1/completions", json=body).json()
    assert answer["object"] == "text_completion"
    assert answer["choices"][0]["text"] == shared.upstream.text(answer["radmoe"]["pick"])


def test_a_kind_that_is_given_is_used_and_one_without_marker_makes_rad_abstain(shared: Any) -> None:
    assert shared.ask({"kind": "choice"}).json()["radmoe"]["kind_source"] == "request"
    answer = shared.ask({"kind": "code"}).json()["radmoe"]
    assert (answer["method"], answer["pick"]) == ("first", 0)
    assert "0 of 8 rollouts have the marker of kind code" in answer["reason"]
    chosen = shared.ask({"kind": "code", "fallback": "likelihood"}).json()["radmoe"]
    assert chosen["method"] == "likelihood"


@pytest.mark.parametrize("preset", ["paper", "paper+dc", "strict", "best", "best+text"])
def test_every_preset_picks_what_the_library_picks(shared: Any, preset: str) -> None:
    answer = shared.ask({"preset": preset, "n": 16}, model="planted").json()["radmoe"]
    whole = shared.upstream.made.group
    group = RolloutGroup("it", [shared.upstream._rollout(i) for i in range(16)], whole.shape, whole.vocab)
    assert (answer["preset"], answer["pick"]) == (preset, select(group, preset=preset).index)


def test_an_adaptive_request_stops_once_the_pick_is_settled(shared: Any) -> None:
    from radmoe.selection.online import OnlineSelector

    answer = shared.ask({"adaptive": True, "n": 64}, model="planted", seed=0).json()
    upstream, radmoe = shared.upstream, answer["radmoe"]
    sampled = radmoe["sampled"]["rollouts"]
    assert 8 < sampled < 64
    assert radmoe["adaptive"] == {"most": 64, "stopped": "settled"}
    whole = upstream.made.group
    selector = OnlineSelector(whole.shape, whole.vocab, kind="math", most=64)
    decisions = [selector.add(upstream._rollout(i)) for i in range(sampled)]
    assert decisions[-1].stop
    assert decisions[-1].selection.index == radmoe["pick"]
    assert answer["choices"][0]["message"]["content"] == upstream.text(radmoe["pick"]).rpartition("</think>")[2]
    assert answer["usage"]["completion_tokens"] == sum(len(upstream._rollout(i)) for i in range(sampled))


def test_the_radmoe_object_has_the_documented_fields_whatever_was_chosen(
    shared: Any, gateway: Callable[..., Any], upstream: Any
) -> None:
    """Clients read `answer.radmoe["margin"]` without asking first whether anything was chosen."""
    page = (Path(__file__).parents[2] / "docs" / "gateway.md").read_text()
    table = page.partition("## What the answer says")[2].partition("**Streaming.**")[0]
    documented = [
        name for cell in re.findall(r"^\| (`[^|]*) \|", table, re.MULTILINE) for name in re.findall(r"`(\w+)`", cell)
    ]
    unread = gateway(upstreams=(upstream(routing="none").url,))
    answers = {
        "rad": shared.ask().json(),
        "first": shared.ask({"kind": "code"}).json(),  # the planted rollouts have no fence
        "likelihood": unread.ask({"fallback": "likelihood"}).json(),
    }
    for method, answer in answers.items():
        assert answer["radmoe"]["method"] == method
        assert sorted(answer["radmoe"]) == sorted(documented)
    nothing = answers["first"]["radmoe"]
    assert [nothing[name] for name in ("index", "margin", "recorded", "adaptive")] == [None] * 4
    assert (nothing["abstained"], nothing["basin"], nothing["readout"]) == (True, [], "delimiter@16")
    assert (set(nothing["located"]), set(nothing["density"])) == ({False}, {None})
    assert answers["likelihood"]["radmoe"]["likelihood"] < 0


def test_a_calibration_says_how_sure_the_pick_is_where_it_was_fitted_for_such_rollouts(
    gateway: Callable[..., Any], upstream: Any, served_checkpoint: Path, tmp_path: Path
) -> None:
    from radmoe.engines.checkpoint import fingerprint
    from radmoe.selection.calibration import Calibration
    from radmoe.selection.curves import Curve, Dense, Fit
    from radmoe.selection.origin import Origin
    from radmoe.selection.rule import Rule

    curve = Curve(8, 0.0, 1.0, 0.0, 1.0, 0.0, 9.0, Dense(0.5, 10, 2))
    fit = Fit((curve, replace(curve, rollouts=64)), 40, 0.5)
    server = upstream()
    plain = gateway(upstreams=(server.url,))
    origin = Origin("planted", fingerprint(served_checkpoint), "thinking", 0.8, 1.0)
    calibration = Calibration(origin, Rule(preset="paper"), {"math": fit})
    (tmp_path / "sure.json").write_text(json.dumps(calibration.to_json()))
    made = gateway(upstreams=(server.url,), calibration=tmp_path / "sure.json")
    drawn = {"temperature": 0.8, "top_p": 1.0, "chat_template_kwargs": {"enable_thinking": True}}
    answer = made.ask(**drawn).json()["radmoe"]
    n = answer["sampled"]["rollouts"]
    rollouts, planted = [server._rollout(i) for i in range(n)], server.made.group
    group = RolloutGroup("it", rollouts, planted.shape, planted.vocab)
    assert answer["probability"] == pytest.approx(calibration.judge(select(group), group).probability)
    assert 0.5 < answer["probability"] < 1.0
    assert answer["probability_reason"] is None
    for body, reason in (
        ({"radmoe": {"preset": "strict"}} | drawn, "the way to select is --preset strict"),
        (drawn | {"temperature": 0.7}, "fitted for temperature 0.8, these rollouts have temperature 0.7"),
        ({"temperature": 0.8, "top_p": 1.0}, "fitted for style thinking, these rollouts have style not recorded"),
        (drawn | {"min_p": 0.1}, "these rollouts have temperature not recorded"),
        (drawn | {"model": "planted", "radmoe": {"n": 4}}, "there are 4 rollouts, and it was fitted for 8 to 64"),
    ):
        other = made.ask(**body).json()["radmoe"]
        assert other["probability"] is None
        assert reason in other["probability_reason"]
    assert "no calibration ships for" in plain.ask(**drawn).json()["radmoe"]["probability_reason"]


def test_only_the_windows_that_are_read_are_fetched(shared: Any) -> None:
    from radmoe.engines.vllm.plugin import payload

    rollouts = shared.upstream.made.group.rollouts[:8]
    whole = sum(len(rollout) for rollout in rollouts)
    sizes: list[int] = []
    encode, before = payload.encode, shared.upstream._routing.__func__.__globals__["encode"]
    shared.upstream._routing.__func__.__globals__["encode"] = lambda rows, layers: (
        sizes.append(sum(len(row.token) for row in rows)) or encode(rows, layers)
    )
    try:
        shared.ask()
    finally:
        shared.upstream._routing.__func__.__globals__["encode"] = before
    assert 0 < sizes[0] <= 16 * 8 < whole


def test_stock_routed_experts_suffice(gateway: Callable[..., Any], upstream: Any) -> None:
    server = upstream(routing="stock")
    answer = gateway(upstreams=(server.url,)).ask(model="planted#rad-16").json()
    whole = server.made.group
    bare = [type(r)(r.token_ids, r.expert_ids) for r in (server._rollout(i) for i in range(16))]
    assert answer["radmoe"]["pick"] == select(RolloutGroup("it", bare, whole.shape, whole.vocab)).index


def test_a_server_without_routing_is_refused_before_it_samples_unless_likelihood_is_asked_for(
    gateway: Callable[..., Any], upstream: Any
) -> None:
    server = upstream(routing="none")
    made = gateway(upstreams=(server.url,))
    asked = len(server.bodies)
    answer = made.ask()
    assert answer.status_code == 400
    error = made.error(answer)
    assert (error["code"], error["param"]) == ("routing_unavailable", "radmoe")
    assert "fallback" in error["message"]
    assert len(server.bodies) == asked
    chosen = made.ask({"fallback": "likelihood"}).json()
    assert chosen["radmoe"]["method"] == "likelihood"
    assert "gives no routing" in chosen["radmoe"]["reason"]
    assert chosen["choices"][0]["logprobs"] is None
    assert made.ask(model="planted").status_code == 200


def test_models_are_listed_plain_and_as_best_of_n(shared: Any) -> None:
    names = [card["id"] for card in shared.client.get("/v1/models").json()["data"]]
    assert names == ["planted", "planted#rad-16"]
    assert shared.client.get("/v1/models/planted%23rad-16").json()["id"] == "planted#rad-16"
    assert shared.client.get("/v1/models/nothing").status_code == 404


def test_metrics_and_health_say_what_goes_on(shared: Any) -> None:
    shared.ask()
    text = shared.client.get("/metrics").text
    assert 'radmoe_picks_total{method="rad"}' in text
    assert 'radmoe_requests_total{mode="best",route="chat",status="200"}' in text
    assert 'radmoe_upstream_up{upstream="upstream-0"} 1.0' in text
    assert "radmoe_own_seconds_bucket" in text
    health = shared.client.get("/health")
    assert health.status_code == 200
    assert health.json()["upstreams"] == [{"up": True, "routing": True, "load": 0}]


@pytest.mark.parametrize(("noise", "within"), [(1.0, True), (0.0, False), (None, None)])
def test_an_answer_says_whether_its_pick_is_within_numeric_noise(
    upstream: Any, gateway: Any, noise: float | None, within: bool | None
) -> None:
    radmoe = gateway(upstreams=(upstream().url,), noise=noise).ask().json()["radmoe"]
    assert (radmoe["method"], radmoe["noise"], radmoe["within_noise"]) == ("rad", noise, within)

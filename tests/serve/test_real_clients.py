"""Clients that people use, unmodified, against a gateway that really listens."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import openai
import pytest

from running_gateway import MESSAGES

pytestmark = pytest.mark.slow

OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "OPENAI_API_KEY": "none",
    "TOKENIZERS_PARALLELISM": "false",
}


@pytest.fixture
def client(shared: Any) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{shared.url}/v1", api_key="none", max_retries=0)


def content(shared: Any, pick: int) -> str:
    return shared.upstream.text(pick).rpartition("</think>")[2]


def test_openai_gets_the_pick_and_the_radmoe_object(client: openai.OpenAI, shared: Any) -> None:
    answer = client.chat.completions.create(model="planted#rad-16", messages=MESSAGES)  # type: ignore[arg-type]
    radmoe = answer.model_extra["radmoe"]  # type: ignore[index]
    assert answer.choices[0].message.content == content(shared, radmoe["pick"])
    assert answer.usage is not None
    assert answer.usage.completion_tokens == radmoe["sampled"]["tokens"]


def test_openai_asks_by_extra_body(client: openai.OpenAI) -> None:
    wanted = {"radmoe": {"n": 4, "preset": "strict", "kind": "math"}}
    answer = client.chat.completions.create(model="planted", messages=MESSAGES, extra_body=wanted)  # type: ignore[arg-type]
    radmoe = answer.model_extra["radmoe"]  # type: ignore[index]
    assert (radmoe["preset"], radmoe["readout"], radmoe["sampled"]["rollouts"]) == ("strict", "delimiter@marker", 4)


def test_openai_streams_the_pick(client: openai.OpenAI, shared: Any) -> None:
    stream = client.chat.completions.create(
        model="planted#rad-16", messages=MESSAGES, stream=True, stream_options={"include_usage": True}  # type: ignore[arg-type]
    )  # fmt: skip
    text, radmoe, usage, reason = "", None, None, None
    for chunk in stream:
        for choice in chunk.choices:
            text += choice.delta.content or ""
            reason = choice.finish_reason or reason
        radmoe = (chunk.model_extra or {}).get("radmoe") or radmoe
        usage = chunk.usage or usage
    assert radmoe is not None
    assert usage is not None
    assert (text, reason) == (content(shared, radmoe["pick"]), "stop")
    assert usage.completion_tokens == radmoe["sampled"]["tokens"]


def test_openai_raises_its_own_errors(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="there is no model 'nobody'"):
        client.chat.completions.create(model="nobody", messages=MESSAGES)  # type: ignore[arg-type]
    with pytest.raises(openai.BadRequestError, match="from 2 to 64"):
        client.chat.completions.create(model="planted#rad-10000", messages=MESSAGES)  # type: ignore[arg-type]


def test_openai_completions_and_models(client: openai.OpenAI, shared: Any) -> None:
    answer = client.completions.create(model="planted#rad-8", prompt="2 plus 3 is")
    assert answer.choices[0].text == shared.upstream.text(answer.model_extra["radmoe"]["pick"])  # type: ignore[index]
    assert [model.id for model in client.models.list()] == ["planted", "planted#rad-16"]
    assert client.models.retrieve("planted#rad-16").id == "planted#rad-16"


LITELLM = """
import json, sys, litellm
answer = litellm.completion(model="openai/planted#rad-8", api_base=sys.argv[1], api_key="none",
    messages=[{"role": "user", "content": "2 plus 3"}], extra_body={"radmoe": {"kind": "math"}})
parts = litellm.completion(model="openai/planted#rad-8", api_base=sys.argv[1], api_key="none", stream=True,
    messages=[{"role": "user", "content": "2 plus 3"}])
text = "".join(part.choices[0].delta.content or "" for part in parts)
message = answer.choices[0].message
print(json.dumps([message.content, message.reasoning_content, answer.usage.completion_tokens, text]))
"""


def test_litellm_gets_the_pick_with_and_without_streaming(shared: Any) -> None:
    done = run([sys.executable, "-c", LITELLM, f"{shared.url}/v1"])
    text, reasoning, tokens, streamed = json.loads(done.splitlines()[-1])
    whole = shared.ask(model="planted#rad-8").json()
    assert text == streamed == whole["choices"][0]["message"]["content"]
    assert reasoning == whole["choices"][0]["message"]["reasoning"]
    assert tokens == whole["usage"]["completion_tokens"]


def test_curl_gets_the_pick(shared: Any) -> None:
    body = json.dumps({"model": "planted#rad-8", "messages": MESSAGES})
    done = run(["curl", "-sS", "--fail", f"{shared.url}/v1/chat/completions", "--json", body])
    assert json.loads(done)["radmoe"]["method"] == "rad"


TASK = """
task: planted_sums
dataset_path: json
dataset_kwargs:
  data_files:
    test: {data}
test_split: test
output_type: generate_until
doc_to_text: "{{{{question}}}}"
doc_to_target: "{{{{answer}}}}"
generation_kwargs:
  until: ["\\n\\n\\n"]
  max_gen_toks: 64
  temperature: 1.0
metric_list:
  - metric: bypass
    aggregation: bypass
    higher_is_better: false
"""


def test_lm_eval_runs_a_generation_task(shared: Any, tmp_path: Path) -> None:
    data = tmp_path / "test.jsonl"
    data.write_text(
        "".join(json.dumps({"question": f"What is {i} plus 3?", "answer": str(i + 3)}) + "\n" for i in range(4))
    )
    (tmp_path / "planted_sums.yaml").write_text(TASK.format(data=data))
    arguments = f"model=planted#rad-4,base_url={shared.url}/v1/chat/completions,num_concurrent=2,max_retries=1"
    before = len(shared.upstream.bodies)
    fixed = ["--model", "local-chat-completions", "--tasks", "planted_sums", "--apply_chat_template", "--log_samples"]
    paths = ["--include_path", tmp_path, "--output_path", tmp_path / "out"]
    run([sys.executable, "-m", "lm_eval", *fixed, "--model_args", arguments, *map(str, paths)], HF_HOME=str(tmp_path))
    (samples,) = (tmp_path / "out").rglob("samples_*.jsonl")
    answers = [json.loads(line)["resps"][0][0] for line in samples.read_text().splitlines()]
    assert len(answers) == 4
    assert [body["n"] for body in shared.upstream.bodies[before:]] == [4] * 4
    assert all(answer.strip() for answer in answers)


def run(command: list[str], **variables: str) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=240, env=os.environ | OFFLINE | variables, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout

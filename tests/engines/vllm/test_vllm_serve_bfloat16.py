"""`vllm serve` in bfloat16: what it sends, both ways, against a float32 replay."""

from __future__ import annotations

import base64
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from radmoe.engines.checkpoint import Checkpoint
from radmoe.engines.http.answers import stock_rows
from radmoe.engines.vllm.plugin.endpoint import ROUTING
from radmoe.engines.vllm.plugin.payload import decode
from radmoe_lab.tasks import problems
from vllm_parts import STOCK, replayed, same_sets, shipped, weights_apart
from vllm_server import OPTIONS, Server

MODELS = ["lab-qwen", "lab-oss", "lab-next"]


@pytest.mark.parametrize("name", MODELS)
def test_ids_and_weights_over_http_agree_with_a_replay(name: str, replay: Any, tmp_path: Path) -> None:
    source = shipped(name)
    if source is None:
        pytest.skip("random routers hardly prefer one expert to the next")
    own = replay(name, "float32")
    options = [
        o for o in OPTIONS if name != "lab-next" or o != "--no-enable-chunked-prefill"
    ]  # a hybrid model needs it
    server = Server(source, tmp_path / "log", "--dtype", "bfloat16", *options)
    try:
        server.wait()
        agree, apart = [], []
        for i, problem in enumerate(problems("math-2", limit=3)):
            prompt = own.encode(problem.prompt)
            choices = server.complete(f"key{i}", 4, prompt=prompt, max_tokens=80, ignore_eos=False)["choices"]
            routing = decode(server.ask(ROUTING, {"key": f"key{i}", "n": 4})[1])
            for choice in choices:
                tokens = np.array(choice["token_ids"])
                ids, weights = routing[choice["index"]].generated(len(tokens))
                if STOCK:
                    sent = np.load(io.BytesIO(base64.b64decode(choice["routed_experts"])))
                    assert np.array_equal(stock_rows(sent, None, len(tokens), Checkpoint(source).router, "it"), ids)
                again = replayed(own, prompt, tokens)
                agree.append(same_sets(ids, again[0]).ravel())
                apart.append(weights_apart((ids, weights), again))
        share = float(np.concatenate(agree).mean())
        print(
            f"{name}: {share:.4f} of {sum(map(len, agree)):,} sets; weights of those that agree differ by {max(apart):.3f} at most"
        )
        assert share >= 0.9
        assert max(apart) < 0.1
    finally:
        server.close()

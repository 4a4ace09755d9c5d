"""A server in vLLM's dialect that answers with planted rollouts: no model runs, so it is fast and always the same.

    python tests/support/planted_upstream.py --port 8001 --checkpoint DIR [--delay 0.2]

It has vLLM's chat and completion routes with n choices, and the plugin's routes, over the planted groups of
`radmoe_lab.planted`; what it is asked, it remembers. `faults` make it do one thing wrong.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import io
import json
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import uvicorn
from fastapi import FastAPI, Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from radmoe.engines.vllm.plugin.endpoint import check_request
from radmoe.engines.vllm.plugin.payload import encode
from radmoe.engines.vllm.plugin.store import ChoiceRows
from radmoe.types import RouterShape
from radmoe_lab import planted

SMALL, LAB = RouterShape(3, 8, 4), RouterShape(11, 32, 8)  # of quick tests, and of the lab's models
CONTEXT = 512
FAULTS = (
    "another n",  # one choice too few
    "truncated",  # half of the routing payload
    "wrong rows",  # rows of other tokens
    "out of range",  # experts that the router does not have
    "hangs",
    "broken JSON",
    "status 500",
    "status 400",
    "no token ids",
    "script",  # markup in a completion
    "half a character",  # a lone surrogate for a finish reason
    "endless answer",
    "many values",  # 24 MB of empty objects
    "drips",  # an answer or stream that goes on, slowly, for ever
    "falls silent",  # a stream that begins and then says nothing more
    "endless stream",
    "come back never",  # status 429 with a Retry-After of 400 digits
)


def save_checkpoint(path: Path, shape: RouterShape = SMALL) -> Path:
    """The directory of the model that this server claims to serve: its configuration and its tokenizer."""
    from transformers import PreTrainedTokenizerFast, Qwen3MoeConfig

    tokenizer = PreTrainedTokenizerFast(tokenizer_object=planted.tokenizer(), eos_token="<|im_end|>")
    tokenizer.save_pretrained(path)
    Qwen3MoeConfig(
        vocab_size=len(tokenizer),
        num_hidden_layers=shape.layers,
        num_experts=shape.experts,
        num_experts_per_tok=shape.top_k,
        max_position_embeddings=CONTEXT,
        hidden_size=64,
        num_attention_heads=4,
    ).save_pretrained(path)
    return path


class PlantedUpstream:
    """`delay` is slept before an answer. `routing` is "plugin", "stock" or "none"."""

    def __init__(
        self,
        root: Path,
        *,
        routing: str = "plugin",
        fault: str | None = None,
        delay: float = 0.0,
        rollouts: int = 64,
        tokens: int = 60,
        kind: str = "math",
        shape: RouterShape = SMALL,
        context: int = CONTEXT,
    ) -> None:
        assert fault is None or fault in FAULTS, fault
        self.root, self.mode, self.fault, self.delay, self.shape = root, routing, fault, delay, shape
        self.context, self.sent = context, 0
        recipe = planted.Planted(shape, problems=1, rollouts=rollouts, tokens=tokens, kind=kind)  # type: ignore[arg-type]
        (self.made,) = planted.groups(recipe)
        self.kept: dict[str, tuple[int, int]] = {}  # by key: how many rollouts, and the first
        self.probes: set[str] = set()  # keys of the two tokens that a client asks for first, and gets without fault
        self.bodies: list[dict[str, Any]] = []
        self.under_way = self.aborted = self.dropped = 0
        self.app = self._app()
        self.url = ""

    # -- the routes ----------------------------------------------------------------------------

    def _app(self) -> FastAPI:
        app = FastAPI()

        @app.get("/health")
        async def health() -> Response:
            return Response()

        @app.get("/version")
        async def version() -> dict[str, str]:
            return {"version": "0.30.0"}

        @app.get("/v1/models")
        async def models() -> dict[str, Any]:
            return {"data": [{"id": "planted", "root": str(self.root), "max_model_len": self.context}]}

        @app.post("/tokenize")
        async def tokenize(request: Request) -> dict[str, Any]:
            text = (await request.json())["prompt"]
            return {"tokens": planted.tokenizer().encode(text, add_special_tokens=False).ids}

        @app.get("/v1/radmoe/status")
        async def status() -> Response:
            if self.mode != "plugin":
                return JSONResponse({"detail": "Not Found"}, 404)
            settings = {"rows": "generated", "layers": None, "weights": True, "memory_mib": 64}
            shape = {"layers": self.shape.layers, "experts": self.shape.experts, "top_k": self.shape.top_k}
            return JSONResponse(shape | {"captured_layers": list(range(self.shape.layers)), "settings": settings})

        @app.post("/v1/radmoe/routing")
        async def routing(request: Request) -> Response:
            return self._routing(check_request(await request.json()))

        @app.post("/v1/chat/completions")
        async def chat(request: Request) -> Response:
            return await self._complete(request, "chat")

        @app.post("/v1/completions")
        async def completions(request: Request) -> Response:
            return await self._complete(request, "text")

        return app

    def _routing(self, wanted: dict[str, Any]) -> Response:
        count, offset = self.kept.pop(wanted["key"], (None, 0))
        if count is None or count != wanted["n"]:
            return JSONResponse({"error": f"holds nothing under the key {wanted['key']!r}"}, 409)
        rows, fault = [], None if wanted["key"] in self.probes else self.fault
        for i in range(count):
            rollout = self._rollout(offset + i)
            inside = np.ones(len(rollout), bool)
            if wanted["spans"] is not None:
                inside[:] = False
                for start, stop in wanted["spans"].get(str(i), ()):
                    inside[start:stop] = True
            self.dropped += wanted["spans"] == {}
            ids = rollout.expert_ids[inside] + (self.shape.experts if fault == "out of range" else 0)
            token = np.flatnonzero(inside).astype(np.int32) + (1000 if fault == "wrong rows" else 0)
            rows.append(ChoiceRows(i, token, ids, rollout.weights[inside]))
        payload = encode(rows, range(self.shape.layers))
        return Response(payload[: len(payload) // 2] if fault == "truncated" else payload)

    async def _complete(self, request: Request, route: str) -> Response:
        body = await request.json()
        self.bodies.append(body)
        probe = isinstance(body.get("prompt"), list) and body.get("max_tokens") == 2
        fault = None if probe else self.fault
        self.under_way += 1
        try:
            await self._wait(request, 3600.0 if fault == "hangs" else 0.0 if probe else self.delay)
        finally:
            self.under_way -= 1
        if fault == "status 500":
            return JSONResponse({"error": {"message": "CUDA error in /secret/path"}}, 500)
        if fault == "status 400":
            return JSONResponse({"error": {"message": "the prompt is too long"}}, 400)
        if fault == "come back never":
            return JSONResponse({"error": {"message": "busy"}}, 429, {"Retry-After": "9" * 400})
        if fault in ("endless answer", "endless stream", "drips", "falls silent"):
            return StreamingResponse(self._without_end(fault), media_type="text/event-stream")
        answer = self._answer(body, route, probe)
        if fault == "many values":
            return Response(json.dumps(answer)[:-1] + ', "x": [' + "{}," * (8 << 20) + "1]}")
        if fault == "half a character":
            answer["choices"][1]["finish_reason"] = "\ud800"
            return Response(json.dumps(answer), media_type="application/json")
        if fault == "broken JSON":
            return Response(json.dumps(answer)[:-10], media_type="application/json")
        if body.get("stream"):
            return StreamingResponse(self._stream(answer), media_type="text/event-stream")
        return JSONResponse(answer)

    async def _without_end(self, fault: str) -> Any:
        """Parts of an answer that never ends; `sent` counts their bytes."""
        part = b": " + b"x" * (1 << 16) + b"\n\n" if fault.startswith("endless") else b": x\n\n"
        while True:
            self.sent += len(part)
            yield part
            await asyncio.sleep(0.0 if fault.startswith("endless") else 3600.0 if fault == "falls silent" else 0.05)

    async def _wait(self, request: Request, seconds: float) -> None:
        """Sleep as a server samples: one whose client leaves stops."""
        gone = asyncio.ensure_future(self._left(request))
        try:
            done, _ = await asyncio.wait({gone}, timeout=seconds)
        finally:
            gone.cancel()
        if done:
            self.aborted += 1
            raise ConnectionError("the client has left")

    async def _left(self, request: Request) -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    async def _stream(self, answer: dict[str, Any]) -> Any:
        for choice in answer["choices"]:
            delta = {"index": choice["index"], "delta": choice["message"], "finish_reason": choice["finish_reason"]}
            yield f"data: {json.dumps(answer | {'choices': [delta], 'object': 'chat.completion.chunk'})}\n\n"
        yield "data: [DONE]\n\n"

    def _answer(self, body: dict[str, Any], route: str, probe: bool) -> dict[str, Any]:
        n, key = body.get("n") or 1, (body.get("vllm_xargs") or {}).get("radmoe")
        prompt = body["prompt"] if probe else [5, 6, 7, 8]
        limit = 2 if probe else CONTEXT
        if key is not None:
            self.kept[key] = n, _seed(body)
            self.probes |= {key} if probe else set()
        choices = [self._choice(body, route, i, len(prompt), limit) for i in range(n)]
        if self.fault == "another n" and not probe:
            choices = choices[:-1]
        tokens = sum(len(self._rollout(_seed(body) + i).token_ids[:limit]) for i in range(n))
        usage = {"prompt_tokens": len(prompt), "completion_tokens": tokens, "total_tokens": len(prompt) + tokens}
        answer = {
            "id": "1",
            "object": "chat.completion",
            "created": 1,
            "model": "planted",
            "choices": choices,
            "usage": usage,
        }
        return answer | ({"prompt_token_ids": prompt} if body.get("return_token_ids") else {})

    def _choice(self, body: dict[str, Any], route: str, i: int, prompt: int, limit: int) -> dict[str, Any]:
        rollout, text = self._rollout(_seed(body) + i), self.text(_seed(body) + i)
        tokens = rollout.token_ids[:limit]
        choice: dict[str, Any] = {"index": i, "finish_reason": "stop" if limit > 2 else "length", "logprobs": None}
        if body.get("return_token_ids") and self.fault != "no token ids":
            choice["token_ids"] = tokens.tolist()
        if self.mode == "stock":
            rows = np.concatenate([np.repeat(rollout.expert_ids[:1], prompt - 1, 0), rollout.expert_ids[: len(tokens)]])
            file = io.BytesIO()
            np.save(file, rows[body.get("routed_experts_prompt_start") or 0 :].astype(np.uint8))
            choice["routed_experts"] = base64.b64encode(file.getvalue()).decode()
        if body.get("logprobs"):
            assert rollout.sampled_logprobs is not None
            sampled = rollout.sampled_logprobs[: len(tokens)].tolist()
            choice["logprobs"] = {"token_logprobs": sampled, "top_logprobs": None}
            if route == "chat":
                most, top = body.get("top_logprobs") or 0, rollout.topk_logprobs
                tops = [[{"token": "y", "logprob": float(p), "bytes": None} for p in step[:most]] for step in top]
                entries = [
                    {"token": "x", "logprob": each, "bytes": None, "top_logprobs": largest}
                    for each, largest in zip(sampled, tops, strict=False)
                ]
                choice["logprobs"] = {"content": entries}
        if route == "text":
            return choice | {"text": text}
        thinking, _, content = text.rpartition("</think>")
        message = {"role": "assistant", "content": content, "reasoning": thinking, "tool_calls": []}
        if body.get("tools"):
            message["tool_calls"] = [
                {"id": f"call-{i}", "type": "function", "function": {"name": "f", "arguments": "{}"}}
            ]
        return choice | {"message": message}

    def _rollout(self, i: int) -> Any:
        return self.made.group.rollouts[i % len(self.made.group)]

    def text(self, i: int) -> str:
        """What rollout i says."""
        text = self.made.texts[i % len(self.made.texts)]
        return f"{text}<script>alert(1)</script>" if self.fault == "script" else text

    # -- the process ---------------------------------------------------------------------------

    @contextmanager
    def running(self, port: int = 0) -> Iterator[PlantedUpstream]:
        """Serve in a thread."""
        config = uvicorn.Config(self.app, host="127.0.0.1", port=port, log_level="critical", lifespan="off")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.01)
        self.url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
        try:
            yield self
        finally:
            server.should_exit = server.force_exit = True
            thread.join(10)


def _seed(body: dict[str, Any]) -> int:
    """The number of the first rollout that is answered."""
    return int(body.get("seed") or 0)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--delay", type=float, default=0.0)
    parser.add_argument("--tokens", type=int, default=60)
    parser.add_argument("--lab", action="store_true", help="a router of the lab's size")
    given = parser.parse_args()
    shape = LAB if given.lab else SMALL
    made = PlantedUpstream(given.checkpoint, delay=given.delay, tokens=given.tokens, shape=shape)
    uvicorn.run(made.app, host="127.0.0.1", port=given.port, log_level="critical", lifespan="off", access_log=False)


if __name__ == "__main__":
    sys.exit(main())

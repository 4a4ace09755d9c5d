"""A server that speaks vLLM's or SGLang's protocol over a tiny real model, and can plant faults.

What it answers is the model's own sampling and routing, in the shape the real servers give it (docs/engines.md);
`FAULTS` are what real ones have been seen to do wrong, or may.
"""

from __future__ import annotations

import base64
import io
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np

from radmoe.engines.base import Sampling
from radmoe.engines.vllm.plugin.endpoint import check_request
from radmoe.engines.vllm.plugin.payload import encode
from radmoe.engines.vllm.plugin.store import ChoiceRows
from radmoe.errors import InputError

FAULTS = (  # of rows
    "zeros",  # a kernel that routes by itself
    "constant",  # every row the first
    "late",  # row p holds position p-1
    "early",  # row p holds position p+1
    "drops a layer",
    "swaps layers",
    "doubles rows",  # twice as many
    "repeats rows",  # as many, but every other is its neighbour
    "loses a row",
    "forgets cached",  # rows of a prefix that was seen before are zero
    "foreign",  # another request's rows
    "out of range",
    "twice",  # one expert twice
    "heavy",  # weights that sum to 2.5 (with the plugin)
    # of payloads
    "truncated",
    "no flag",
    # of sampling and spelling
    "unsteady",  # temperature 0 samples
    "unseeded",  # seeds are ignored
    "respells",  # another tokenizer
)


@cache
def computed(engine: Any, prompt: tuple[int, ...], sampling: Sampling) -> tuple[Any, np.ndarray, np.ndarray]:
    """A completion, and ids and weights of every input position [P+T-1, L, K]; tests ask for the same ones often."""
    (done,) = engine.generate([prompt], 1, sampling=sampling, keys=["fake"])
    ids, weights = engine.teacher_forced([*prompt, *done.rollout.token_ids.tolist()][:-1])
    ids[len(prompt) - 1 :] = done.rollout.expert_ids  # what sampling saw
    weights[len(prompt) - 1 :] = done.rollout.weights
    return done, ids, weights


class FakeServer:
    """`engine` samples; `name` is the served model. `busy` are statuses answered first, one request each;
    after `dies_after` rollouts connections are cut and no more are taken; `delay` is slept before an answer.
    `captured` are the layers the plugin captures, None all; `context` is the most tokens that it says it takes."""

    def __init__(
        self,
        engine: Any,
        kind: str = "vllm",
        *,
        name: str = "tiny",
        root: str = "/nowhere/tiny",
        plugin: bool = False,  # of vLLM; SGLang then packs weights into its ids
        tokens: bool = False,  # vLLM's route for token ids is open
        rust: bool = False,  # vLLM's Rust frontend
        captured: list[int] | None = None,
        faults: set[str] = frozenset(),  # type: ignore[assignment]
        busy: list[int] = (),  # type: ignore[assignment]
        dies_after: int | None = None,
        delay: float = 0.0,
        context: int = 256,
    ) -> None:
        assert faults <= set(FAULTS), faults
        self.engine, self.kind, self.name, self.root, self.plugin = engine, kind, name, root, plugin
        self.tokens, self.rust = tokens, rust
        self.faults, self.busy, self.dies_after = set(faults), list(busy), dies_after
        self.delay, self.context = delay, context
        text = engine.model.config.get_text_config()
        self.layers = text.num_hidden_layers  # real servers give dense layers a place, of zeros
        self.lock = threading.Lock()
        self.seen: list[tuple[int, ...]] = []  # prompts, as a prefix cache would know them
        self.captured = list(range(engine.shape.layers)) if captured is None else captured
        self.kept: dict[str, ChoiceRows] = {}  # what the plugin holds, by key
        self.sent: list[int] = []  # bytes of each routing payload
        self.served = self.at_once = self.most_at_once = 0
        self.bodies: list[dict[str, Any]] = []
        fake = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                fake.handle(self, None)

            def do_POST(self) -> None:
                fake.handle(self, self.rfile.read(int(self.headers["Content-Length"])))

            def log_message(self, *_: object) -> None:
                pass

        class Quiet(ThreadingHTTPServer):
            def handle_error(self, *_: object) -> None:
                pass  # clients that hang up are part of the tests

        self.http = Quiet(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.http.server_port}"

    @contextmanager
    def running(self) -> Iterator[FakeServer]:
        thread = threading.Thread(target=self.http.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self.http.shutdown()
            self.http.server_close()
            thread.join()

    # -- HTTP ----------------------------------------------------------------------------------

    def handle(self, request: BaseHTTPRequestHandler, data: bytes | None) -> None:
        with self.lock:
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
            dead = self.dies_after is not None and self.served >= self.dies_after
        try:
            if dead:
                request.close_connection = True
                return  # the client sees the connection end
            answer = self.answer(request.path, None if data is None else json.loads(data))
        finally:
            with self.lock:
                self.at_once -= 1
        status, body = answer
        payload = body if isinstance(body, bytes) else json.dumps(body).encode()
        request.send_response(status)
        request.send_header("Content-Length", str(len(payload)))
        if status == 429:
            request.send_header("Retry-After", "0")
        request.end_headers()
        request.wfile.write(payload)

    def answer(self, path: str, body: dict[str, Any] | None) -> tuple[int, Any]:
        if path == "/v1/models":
            card = {"id": self.name, "root": self.root, "max_model_len": self.context}
            return 200, {"object": "list", "data": [card]}
        if path == "/tokenize" and self.kind == "vllm":
            ids = self.engine.tokenizer(body["prompt"], add_special_tokens=body["add_special_tokens"])["input_ids"]
            return 200, {"tokens": [i + ("respells" in self.faults) for i in ids], "count": len(ids)}
        if path == "/version" and self.kind == "vllm":
            return 200, {"version": "0.30.0"} | ({"rust_frontend_version": "0.30.0"} if self.rust else {})
        if path == "/server_info" and self.kind == "sglang":
            return 200, {"version": "0.5.23"}
        if path.startswith("/v1/radmoe") and self.plugin:
            return self.routing(path, body)
        if path == "/inference/v1/generate" and self.tokens:
            if "token_ids" not in body:
                return 400, {"error": {"message": "token_ids: Field required", "code": 400}}
            asked = body["sampling_params"]
            self.bodies.append(body)
            spoken = {"model": body["model"], "prompt": body["token_ids"], "vllm_xargs": asked["extra_args"] or {}}
            return self.completions(asked | spoken | {"return_token_ids": True})
        if path == ("/v1/completions" if self.kind == "vllm" else "/generate"):
            with self.lock:
                self.bodies.append(body)
                status = self.busy.pop(0) if self.busy else 200
            if status != 200:
                return status, {"error": {"message": f"planted {status}"}}
            time.sleep(self.delay)
            done = self.completions(body) if self.kind == "vllm" else self.generate(body)
            with self.lock:
                self.served += 1
            return done
        return 404, {"detail": "Not Found"}

    def routing(self, path: str, body: dict[str, Any] | None) -> tuple[int, Any]:
        if path.endswith("/status"):
            layers, experts, top_k = self.engine.shape.layers, self.engine.shape.experts, self.engine.shape.top_k
            settings = {"rows": "generated", "layers": None, "weights": True, "memory_mib": 64}
            shape = {"layers": layers, "experts": experts, "top_k": top_k, "captured_layers": self.captured}
            return 200, shape | {"settings": settings}
        try:
            request = check_request(body)
        except InputError as error:
            return 400, {"error": str(error)}
        rows = self.kept.pop(request["key"], None)
        if rows is None:
            return 409, {"error": f"no routing of {request['key']}"}
        payload = encode([_cut(rows, request["spans"])], self.captured)
        self.sent.append(len(payload))
        return 200, payload[: len(payload) // 2] if "truncated" in self.faults else payload

    # -- the two protocols ---------------------------------------------------------------------

    def completions(self, body: dict[str, Any]) -> tuple[int, Any]:
        if body["model"] != self.name:
            return 404, {"error": {"message": f"The model `{body['model']}` does not exist.", "code": 404}}
        prompt, first = body["prompt"], body.get("routed_experts_prompt_start", 0)
        done, ids, weights = self.sample(prompt, body, body["max_tokens"], body["seed"], body.get("logprobs", 0))
        if key := body.get("vllm_xargs", {}).get("radmoe"):
            self.keep(key, ids, weights, len(prompt))
            first = 0
        logprobs = None
        if body.get("logprobs"):
            top, sampled = done.rollout.topk_logprobs.tolist(), done.rollout.sampled_logprobs.tolist()
            logprobs = {
                "token_logprobs": sampled,
                "top_logprobs": [
                    {f"token_id:{i}": p for i, p in enumerate([*step, one] if one < step[-1] else step)}
                    for step, one in zip(top, sampled, strict=True)
                ],  # vLLM adds the sampled token where it is not among the largest
            }
        choice = {
            "index": 0,
            "text": self.text(done),
            "finish_reason": done.finish_reason,
            "token_ids": done.rollout.token_ids.tolist() if body.get("return_token_ids") else None,
            "logprobs": logprobs,
            "routed_experts": self.npy(ids[first:].astype(np.uint8)),
        }
        usage = {"prompt_tokens": len(prompt), "completion_tokens": len(done.rollout)}
        return 200, {"model": self.name, "choices": [choice], "usage": usage}

    def generate(self, body: dict[str, Any]) -> tuple[int, Any]:
        prompt, asked, first = body["input_ids"], body["sampling_params"], body["routed_experts_start_len"]
        done, ids, weights = self.sample(prompt, asked, asked["max_new_tokens"], asked["sampling_seed"], 20)
        tokens, rollout = done.rollout.token_ids.tolist(), done.rollout
        most = body["top_logprobs_num"]
        stop = {"type": "stop", "matched": tokens[-1]}
        meta: dict[str, Any] = {
            "id": "1",
            "finish_reason": stop if done.finish_reason == "stop" else {"type": "length", "length": len(tokens)},
            "prompt_tokens": len(prompt),
            "completion_tokens": len(tokens),
            "cached_tokens": self.cached(prompt),
            "output_token_logprobs": [
                [float(p), t, None] for p, t in zip(rollout.sampled_logprobs, tokens, strict=True)
            ],
            "output_top_logprobs": [
                [[float(p), i, None] for i, p in enumerate(step[:most])] for step in rollout.topk_logprobs
            ],
        }
        if "no flag" not in self.faults:
            if self.plugin:
                ids = ids + (weights.astype(np.float16).view(np.uint16).astype(np.int32) << 16)
            raw = base64.b64encode(ids[first:].astype("<i4").tobytes()).decode()
            meta["routed_experts"] = raw[: len(raw) // 8 * 4 + 4] if "truncated" in self.faults else raw
        return 200, {"text": self.text(done), "output_ids": tokens, "meta_info": meta}

    # -- the model -----------------------------------------------------------------------------

    def sample(
        self, prompt: list[int], asked: dict[str, Any], limit: int, seed: int, most: int
    ) -> tuple[Any, np.ndarray, np.ndarray]:
        """A completion, and ids and weights of every input position [P+T-1, layers, K], faults included."""
        temperature = asked["temperature"]
        with self.lock:
            if "unsteady" in self.faults:
                temperature, seed = 1.0, self.served
            if "unseeded" in self.faults:
                seed = len(self.bodies)
            sampling = Sampling(temperature, asked["top_p"], limit, seed, most)
            done, ids, weights = computed(self.engine, tuple(prompt), sampling)
            if "foreign" in self.faults:
                tokens = [*reversed(prompt), *done.rollout.token_ids.tolist()]
                ids, weights = self.engine.teacher_forced(tokens[:-1])
            ids, weights = self.placed(ids), self.placed(weights)
            ids = self.spoil(ids, self.cached(prompt))
            self.seen.append(tuple(prompt))
        return done, ids, weights * (2.5 if "heavy" in self.faults else 1)

    def placed(self, rows: np.ndarray) -> np.ndarray:
        """Rows [.., L, K] of the layers with experts among all layers; the dense ones come first."""
        dense = self.layers - rows.shape[1]
        return np.pad(rows, ((0, 0), (dense, 0), (0, 0)))

    def spoil(self, ids: np.ndarray, cached: int) -> np.ndarray:
        for fault in self.faults:
            match fault:
                case "zeros":
                    ids = np.zeros_like(ids)
                case "constant":
                    ids = np.repeat(ids[:1], len(ids), 0)
                case "late":
                    ids = np.roll(ids, 1, 0)
                case "early":
                    ids = np.roll(ids, -1, 0)
                case "drops a layer":
                    ids = ids[:, 1:]
                case "swaps layers":
                    ids = ids[:, ::-1]
                case "doubles rows":
                    ids = np.repeat(ids, 2, 0)
                case "repeats rows":
                    ids = ids[np.arange(len(ids)) // 2 * 2]
                case "loses a row":
                    ids = ids[:-1]
                case "forgets cached":
                    ids = np.concatenate([np.zeros_like(ids[:cached]), ids[cached:]])
                case "out of range":
                    ids = ids + self.engine.shape.experts
                case "twice":
                    ids = np.concatenate([ids[..., :1], ids[..., :-1]], -1)
        return ids

    def cached(self, prompt: list[int]) -> int:
        """Prompt positions a prefix cache in blocks of 16 would know; the last is always computed."""
        most = 0
        for seen in self.seen:
            same = next((i for i, (a, b) in enumerate(zip(seen, prompt, strict=False)) if a != b), len(prompt))
            most = max(most, min(same, len(prompt) - 1, len(seen)))
        return most // 16 * 16

    def keep(self, key: str, ids: np.ndarray, weights: np.ndarray, prompt: int) -> None:
        dense = self.layers - self.engine.shape.layers
        ids, weights = (rows[prompt - 1 :, dense:][:, self.captured] for rows in (ids, weights))
        token = np.arange(len(ids), dtype=np.int32)
        self.kept[key] = ChoiceRows(0, token, ids.astype(np.int16), weights[: len(ids)].astype(np.float16))

    def npy(self, array: np.ndarray) -> str | None:
        if "no flag" in self.faults:
            return None
        file = io.BytesIO()
        np.save(file, array)
        text = base64.b64encode(file.getvalue()).decode()
        return text[: len(text) // 2] if "truncated" in self.faults else text

    def text(self, done: Any) -> str:
        tokens = done.rollout.token_ids.tolist()
        return self.engine.tokenizer.decode(tokens[:-1] if done.finish_reason == "stop" else tokens)


def _cut(rows: ChoiceRows, spans: dict[str, list[list[int]]] | None) -> ChoiceRows:
    """The token ranges asked for, as the plugin's store hands them out."""
    if spans is None:
        return rows
    inside = np.zeros(len(rows.token), bool)
    for start, stop in spans.get("0", ()):
        inside |= (rows.token >= start) & (rows.token < stop)
    return ChoiceRows(rows.choice, rows.token[inside], rows.ids[inside], rows.weights[inside])

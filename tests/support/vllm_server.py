"""A real `vllm serve` process with the plugin."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from vllm_parts import GPU, STOCK, VERSION


class Server:
    """A `vllm serve` process on a free port."""

    def __init__(self, model: Path, log: Path, *options: str, port: int | None = None) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = port or probe.getsockname()[1]
        command = [sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", str(model), "--port", str(self.port)]
        fixed = "--host 127.0.0.1 --dtype float32 --max-model-len 1024 --max-num-seqs 32 "
        fixed += "--gpu-memory-utilization 0.1 --attention-backend TRITON_ATTN" if GPU else "--enforce-eager"
        self.log = log
        self.process = subprocess.Popen(
            [*command, *fixed.split(), "--served-model-name", "lab", *options],
            env=os.environ | {"VLLM_PLUGINS": "radmoe", "VLLM_LOGGING_LEVEL": "WARNING"},
            stdout=log.open("wb"),
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def wait(self) -> None:
        while self.process.poll() is None:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=5):
                    return
            except OSError:
                time.sleep(0.5)
        raise AssertionError(self.log.read_text()[-3000:])

    def ask(self, path: str, body: Any = None) -> tuple[int, bytes]:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}", data, {"Content-Type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()

    def complete(self, key: str | None, n: int = 1, **body: Any) -> dict[str, Any]:
        asked = {"model": "lab", "n": n, "max_tokens": 24, "return_token_ids": True, "seed": 3, "ignore_eos": True}
        extra = {} if key is None else {"vllm_xargs": {"radmoe": key}}
        path = "/v1/chat/completions" if "messages" in body else "/v1/completions"
        code, answer = self.ask(path, asked | extra | body)
        assert code == 200, answer
        return json.loads(answer)

    def kill(self) -> None:
        """Every process of the server, at once."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(30)


OPTIONS = (
    *(["--enable-return-routed-experts"] if STOCK else []),
    *(["--enable-scale-out"] if VERSION >= (0, 30) else []),  # opens the route for token ids
    "--no-enable-chunked-prefill",
    "--additional-config",
    '{"radmoe": {"memory_mib": 64}}',
)


@contextmanager
def running(checkpoint: Path, log: Path) -> Iterator[Server]:
    """A server of a checkpoint that answers, until the block ends."""
    made = Server(checkpoint, log, *OPTIONS)
    try:
        made.wait()
        yield made
    finally:
        made.close()

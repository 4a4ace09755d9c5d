"""A gateway in a thread of the test's process, listening on a free port."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable
from typing import Any

import httpx

from radmoe.serve.run import run_until
from radmoe.serve.settings import Settings

JSON = {"Content-Type": "application/json"}
MESSAGES = [{"role": "user", "content": "What is 2 plus 3?"}]


def until(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    """Wait until something is so, which may take long on a busy machine."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never was so"
        time.sleep(0.02)


class RunningGateway:
    """`with RunningGateway(upstreams=(url,)) as gateway`: gateway.url answers; the end of the block ends it."""

    def __init__(self, **settings: Any) -> None:
        self._settings = Settings(**({"port": 0, "keep_alive": 0.1, "retries": 1} | settings))
        self._ready, self._error = threading.Event(), None
        self.upstream: Any = None

    def __enter__(self) -> RunningGateway:
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        self._ready.wait(60)
        if self._error is not None:
            self._thread.join()
            raise self._error
        self.client = httpx.Client(base_url=self.url, timeout=60)
        return self

    def __exit__(self, *_: object) -> None:
        if not self._thread.is_alive():
            return
        self.client.close()
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(60)
        assert not self._thread.is_alive()

    def ask(self, radmoe: Any = None, model: str = "planted#rad-8", **body: Any) -> httpx.Response:
        """Ask for a chat completion."""
        extra = {} if radmoe is None else {"radmoe": radmoe}
        data = json.dumps({"model": model, "messages": MESSAGES} | extra | body)
        return self.client.post("/v1/chat/completions", content=data, headers=JSON)

    def error(self, response: httpx.Response) -> dict[str, Any]:
        """The error of an answer, which must have OpenAI's shape and name nothing of what stands behind."""
        error = response.json()["error"]
        assert set(error) == {"message", "type", "param", "code"}
        for leak in ("127.0.0.1", "Traceback", "/tmp", "secret", "site-packages"):
            assert leak not in response.text
        return error

    def _run(self) -> None:
        async def main() -> None:
            self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
            await run_until(self._end, self._settings, self._listens)

        try:
            asyncio.run(main())
        except BaseException as error:
            self._error = error
            self._ready.set()

    def _listens(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self._ready.set()

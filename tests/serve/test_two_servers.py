"""Two servers behind one address that record into one object store."""

from __future__ import annotations

import itertools
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from radmoe import open_pool, select
from radmoe.errors import PoolIncomplete
from radmoe.pool.stores import StorePath
from running_gateway import JSON, MESSAGES

pytestmark = pytest.mark.slow


def _pump(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)


@contextmanager
def _one_address(urls: list[str]) -> Iterator[str]:
    """An address whose connections go to the servers in turns."""
    listener = socket.create_server(("127.0.0.1", 0))
    targets = itertools.cycle([urlsplit(url).port for url in urls])

    def serve(client: socket.socket) -> None:
        with client, socket.create_connection(("127.0.0.1", next(targets) or 0)) as server:
            back = threading.Thread(target=_pump, args=(server, client))
            back.start()
            _pump(client, server)
            back.join()

    def accept() -> None:
        with ThreadPoolExecutor(8) as pool, suppress(OSError):
            while True:
                pool.submit(serve, listener.accept()[0])

    thread = threading.Thread(target=accept)
    thread.start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join()


def test_two_servers_behind_one_address_record_into_one_store(
    gateway: Callable[..., Any], upstream: Any, bucket: StorePath
) -> None:
    server = upstream()
    gateways = [gateway(upstreams=(server.url,), record=bucket) for _ in range(2)]
    with _one_address([one.url for one in gateways]) as url:

        def ask(number: int) -> dict[str, Any]:
            body = {"model": f"planted#rad-{4 + number % 3}", "messages": MESSAGES}
            answer = httpx.post(
                f"{url}/v1/chat/completions", json=body, headers=JSON | {"Connection": "close"}, timeout=60
            )
            return dict(answer.json())

        with ThreadPoolExecutor(4) as pool:
            answers = list(pool.map(ask, range(12)))
    assert all(answer["radmoe"]["recorded"] for answer in answers)
    with pytest.raises(PoolIncomplete):
        open_pool(bucket)
    for one in gateways:
        one.__exit__()
    pool = open_pool(bucket)
    assert pool.verify() == []
    assert len(pool.shards) == 2  # both had some of the requests
    assert sorted(pool.problems) == sorted(answer["id"] for answer in answers)
    for answer in answers:
        assert select(pool.group(answer["id"])).index == answer["radmoe"]["pick"]

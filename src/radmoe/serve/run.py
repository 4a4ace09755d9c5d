"""Runs the gateway: opens the port, starts the backend, and shuts down without losing recorded rollouts."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from radmoe.errors import EngineError, InputError
from radmoe.serve.backends import Backend, in_thread
from radmoe.serve.settings import Settings

_THREADS = 4  # for selection and for reading routing: more would wait for Python's lock
_QUEUE = 2048  # connections that the system keeps until they are accepted
_LAST_SECONDS = 20  # that requests under way may take when the process is told to end


def open_backend(settings: Settings) -> Backend:
    """The backend that the settings name; it is not started yet."""
    if settings.upstreams:
        from radmoe.serve.upstream_backend import UpstreamBackend

        return UpstreamBackend(settings)
    from radmoe.serve.engine_backend import EngineBackend

    return EngineBackend(settings)


def serve(settings: Settings, *, ready: Callable[[int], None] = lambda port: None) -> None:
    """Serve until the process is told to end. `ready` is called with the port once requests are answered."""
    try:
        import fastapi  # noqa: F401
        import prometheus_client  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise EngineError(f"the gateway needs {error.name}: pip install 'radmoe[serve]'") from None
    from radmoe.serve.telemetry import log_as_json

    def listens(port: int) -> None:
        log_as_json()  # by now the libraries have been loaded
        ready(port)

    log_as_json()
    asyncio.run(_until_told(settings, listens))


async def _until_told(settings: Settings, ready: Callable[[int], None]) -> None:
    """Serve until a signal tells the process to end."""
    end, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, end.set)
    await run_until(end, settings, ready)


async def run_until(end: asyncio.Event, settings: Settings, ready: Callable[[int], None]) -> None:
    """Serve until the event is set; then requests under way have some seconds to finish, and the pool is sealed."""
    import uvicorn

    from radmoe.serve.app import build
    from radmoe.serve.connections import BACKLOG, Complaints, Connection, most_connections, sweep
    from radmoe.serve.service import Service

    class Server(uvicorn.Server):
        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield  # they are taken above

        async def on_tick(self, counter: int) -> bool:
            if counter % 10 == 0:  # every second
                sweep(self.server_state.connections)
            return await super().on_tick(counter)

    class Limited(Connection):
        most = most_connections()

    asyncio.get_running_loop().set_exception_handler(Complaints())

    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(_THREADS, thread_name_prefix="radmoe-gateway"))
    with _listen(settings.host, settings.port) as listener:
        backend = open_backend(settings)
        try:
            await backend.start()
            service = Service(settings, backend)
            await service.begin()
            await in_thread(warm_up)
        except BaseException:
            await backend.close()
            raise
        config = uvicorn.Config(
            build(service),
            log_config=None,  # its lines are those of the process
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_keep_alive=30,
            timeout_graceful_shutdown=_LAST_SECONDS,
            lifespan="on",
            http=Limited,
            ws="none",
            backlog=BACKLOG,
        )
        server = Server(config)
        running = asyncio.create_task(server.serve(sockets=[listener]))
        while not server.started and not running.done():
            await asyncio.sleep(0.01)
        if server.started:
            listener.listen(_QUEUE)  # more may wait to be accepted than are accepted in one go
            ready(listener.getsockname()[1])
        await end.wait()
        server.should_exit = True
        await running


def warm_up() -> None:
    """Compile the kernels of selection, so that the first request does not wait for them."""
    import numpy as np
    from tokenizers import Tokenizer, models

    from radmoe.selection.selector import select
    from radmoe.types import Rollout, RolloutGroup, RouterShape
    from radmoe.vocab import Vocab

    ids = np.tile(np.array([0, 1], np.int16), (4, 2, 1))  # 4 tokens, 2 layers, 2 experts
    rollouts = [Rollout(np.zeros(4, np.int32), ids, np.full(ids.shape, 0.5, np.float16)) for _ in range(6)]
    vocab = Vocab.from_tokenizer(Tokenizer(models.BPE({"a": 0}, [], byte_fallback=True)))
    group = RolloutGroup("warm-up", rollouts, RouterShape(2, 4, 2), vocab)
    for kernel in ("weighted", "binary"):
        select(group, readout="all", kernel=kernel)


def _listen(host: str, port: int) -> socket.socket:
    """A socket that listens on this address. Raises InputError if it is not available."""
    try:
        (family, _, _, _, address), *_ = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_QUEUE)
    except OSError as error:
        raise InputError(
            f"cannot listen on {host}:{port} ({error.strerror}): choose another --host or --port"
        ) from None
    return listener

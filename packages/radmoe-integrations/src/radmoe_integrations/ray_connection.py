"""The Ray cluster that `--on` names, and what is told of one that cannot be used."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from radmoe.errors import ClusterError, InputError

_SECONDS = 5.0  # that a head node has to answer at its port
_STORE_BYTES = 80 << 20  # of a cluster that is started here: rollouts do not travel through Ray


@contextmanager
def connected(on: str) -> Iterator[Any]:
    """Connect to a Ray cluster, and yield the module `ray`: "ray" is this machine's cluster, or a new one on it alone.

    "ray://HOST:6379" is the cluster with this head node. A process that is connected already stays so.
    """
    scheme, separator, address = on.partition("://")
    host, _, port = address.rpartition(":")
    if scheme != "ray" or (separator and not (host and port.isdecimal())):
        raise InputError(f"--on {on!r} is no cluster: write ray, or ray://HOST:6379 with the address of its head node")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # a cluster that is started here reports to nobody
    try:
        import ray
    except ImportError:
        raise InputError(f"--on {on} needs Ray: pip install 'radmoe[ray]'") from None
    if ray.is_initialized():
        yield ray
        return
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.FATAL}
    try:
        if address:
            socket.create_connection((host, int(port)), _SECONDS).close()
            ray.init(address=address, **options)
        else:
            try:
                ray.init(address="auto", **options)
            except ConnectionError:
                ray.init(address="local", include_dashboard=False, object_store_memory=_STORE_BYTES, **options)
    except (OSError, RuntimeError, ValueError, OverflowError) as error:  # OSError: ConnectionError too
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ClusterError(
            f"no Ray cluster can be used at {address or 'this machine'} ({reason}): start one by ray start --head, "
            "with this Python and this Ray, and give its HOST:6379"
        ) from None
    inside = vars(ray._private.worker)  # it prints the fate of every lost worker on stdout, where JSON may be expected
    printing, inside["print_to_stdstream"] = inside.get("print_to_stdstream"), lambda *args, **kwargs: None
    try:
        yield ray
    finally:
        ray.shutdown()
        inside["print_to_stdstream"] = printing

"""Addresses of Ray clusters that cannot be used."""

from __future__ import annotations

import socket

import pytest

from radmoe.errors import ClusterError, InputError
from radmoe_integrations.ray_connection import connected


@pytest.mark.parametrize("on", ["", "rya", "ray://", "ray://head", "ray://head:", "ray://:6379", "http://head:6379"])
def test_what_is_no_address_is_refused(on: str) -> None:
    with pytest.raises(InputError, match="is no cluster: write ray, or ray://HOST:6379"), connected(on):
        pass


@pytest.mark.slow
def test_an_address_without_a_cluster_is_one_line() -> None:
    pytest.importorskip("ray", reason="Ray is not installed (pip install 'radmoe[ray]')")
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        port = nobody.getsockname()[1]
        line = rf"no Ray cluster can be used at 127.0.0.1:{port} \(.*refused\): start one"
        with pytest.raises(ClusterError, match=line), connected(f"ray://127.0.0.1:{port}"):
            pass

"""A real server of the S3 protocol: SeaweedFS, as a wheel brings it."""

from __future__ import annotations

import http.client
import json
import os
import random
import socket
import subprocess
import sys
import time
from pathlib import Path

ENVIRONMENT = {"AWS_ACCESS_KEY_ID": "writer", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1"}
READ_ONLY = {"AWS_ACCESS_KEY_ID": "reader", "AWS_SECRET_ACCESS_KEY": "other"}
_PORTS = ("master", "volume", "filer", "s3")


class SeaweedFS:
    """A server on this machine, whose data lies in a directory. It can be stopped and started again."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._ports = dict(zip(_PORTS, _free_ports(len(_PORTS)), strict=True))
        self.url = f"http://127.0.0.1:{self._ports['s3']}"
        self.environment = ENVIRONMENT | {"AWS_ENDPOINT_URL": self.url}
        (directory / "data").mkdir()
        identities = [
            {"name": name, "credentials": [{"accessKey": name, "secretKey": secret}], "actions": actions}
            for name, secret, actions in (
                ("writer", "secret", ["Admin", "Read", "Write", "List"]),
                ("reader", "other", ["Read", "List"]),
            )
        ]
        (directory / "s3.json").write_text(json.dumps({"identities": identities}))
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        """Start the server and wait until it takes objects."""
        weed = Path(sys.executable).parent / "weed"
        ports = [f"-{name}.port{'.grpc' * grpc}={port + grpc}" for name, port in self._ports.items() for grpc in (0, 1)]
        with (self._directory / "log").open("ab") as log:
            command = [weed, "server", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-dir={self._directory / 'data'}", "-s3"]
            few = ["-volume.max=5", "-master.volumeSizeLimitMB=256", "-s3.port.iceberg=0", "-s3.port.lance=0"]
            own = [f"-s3.config={self._directory / 's3.json'}", "-master.telemetry=false"]
            self._process = subprocess.Popen(
                [*command, *few, *own, *ports],
                stdout=log,
                stderr=log,
                env=os.environ | {"HOME": str(self._directory)},
            )
        for _ in range(600):
            time.sleep(0.1)
            if self._filed("/buckets/pools/ready", b"x") == 201:  # one bucket: each takes volumes of its own
                return
        raise AssertionError((self._directory / "log").read_text()[-2000:])

    def stop(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def damage(self, path: str, content: bytes) -> None:
        """Replace an object behind the store's back."""
        assert self._filed(f"/buckets/{path.removeprefix('s3://')}", content) == 201

    def _filed(self, path: str, content: bytes | None = None) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", self._ports["filer"], timeout=30)
        try:
            if content is None:
                connection.request("POST", path)
            else:
                connection.request("PUT", path, content, {"Content-Type": "application/octet-stream"})
            return connection.getresponse().status
        except OSError:
            return 0
        finally:
            connection.close()


def _free_ports(count: int) -> list[int]:
    """Ports of which the next one is free too, for the server's own talk."""
    found: list[int] = []
    while len(found) < count:
        port = random.randrange(20000, 32000, 2)
        if port not in found and all(_is_free(each) for each in (port, port + 1)):
            found.append(port)
    return found


def _is_free(port: int) -> bool:
    with socket.socket() as s:
        return s.connect_ex(("127.0.0.1", port)) != 0

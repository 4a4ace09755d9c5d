"""A small server of the S3 protocol that does not do what it should: it ignores conditions, refuses, fills up, is slow, or lies."""

from __future__ import annotations

import hashlib
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit


@dataclass
class Crooked:
    """What the server holds, and how it misbehaves. `expires_after` counts the objects that are still taken."""

    objects: dict[str, bytes] = field(default_factory=dict)
    honours: bool = True  # conditions
    read_only: bool = False
    room: int = 1 << 30  # bytes that it takes before it is full
    delay: float = 0.0  # seconds before it answers
    loses: str = "nothing"  # the objects that it forgets, by a regular expression
    cuts: str = "nothing"  # and those that it cuts
    expires_after: int = 1 << 30
    requests: int = 0
    url: str = ""

    @property
    def environment(self) -> dict[str, str]:
        return {
            "AWS_ACCESS_KEY_ID": "KEY",
            "AWS_SECRET_ACCESS_KEY": "SECRET",
            "AWS_REGION": "x",
            "AWS_ENDPOINT_URL": self.url,
        }


@contextmanager
def crooked_store() -> Iterator[Crooked]:
    state, one_at_a_time = Crooked(), threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            name, query = self._asked()
            if "list-type" in query:
                self._list(name, query)
            elif (content := state.objects.get(name)) is None:
                self._answer(404, _error("NoSuchKey"))
            elif (asked := re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))) is not None:
                start, stop = int(asked[1]), min(int(asked[2]) + 1, len(content))
                self._answer(206, content[start:stop], content, range_=f"bytes {start}-{stop - 1}/{len(content)}")
            else:
                self._answer(200, content, content)

        def do_HEAD(self) -> None:
            self.do_GET()

        def do_PUT(self) -> None:
            name, _ = self._asked()
            content = self.rfile.read(int(self.headers["Content-Length"]))
            with one_at_a_time:
                self._take(name, content)

        def _take(self, name: str, content: bytes) -> None:
            old = state.objects.get(name)
            state.expires_after -= 1
            if state.expires_after < 0:
                self._answer(403, _error("ExpiredToken"))
            elif state.read_only:
                self._answer(403, _error("AccessDenied"))
            elif state.room < len(content):
                self._answer(507, _error("InsufficientStorage"))
            elif (state.honours and self.headers.get("If-None-Match") == "*" and old is not None) or (
                state.honours and self.headers.get("If-Match") not in (None, None if old is None else _tag(old))
            ):
                self._answer(412, _error("PreconditionFailed"))
            else:
                state.room -= len(content)
                if not re.search(state.loses, name):
                    state.objects[name] = content[:-2] if re.search(state.cuts, name) else content
                self._answer(200, b"", content)

        def do_DELETE(self) -> None:
            state.objects.pop(self._asked()[0], None)
            self._answer(204, b"")

        def do_POST(self) -> None:
            bucket, _ = self._asked()
            content = self.rfile.read(int(self.headers["Content-Length"])).decode()
            names = re.findall("<Key>(.+?)</Key>", content)
            for name in names:
                state.objects.pop(f"{bucket}/{name}", None)
            gone = "".join(f"<Deleted><Key>{name}</Key></Deleted>" for name in names)
            self._answer(200, f"<DeleteResult>{gone}</DeleteResult>".encode())

        def _asked(self) -> tuple[str, dict[str, list[str]]]:
            state.requests += 1
            time.sleep(state.delay)
            parts = urlsplit(self.path)
            return unquote(parts.path).lstrip("/"), parse_qs(parts.query, keep_blank_values=True)

        def _list(self, bucket: str, query: dict[str, list[str]]) -> None:
            prefix = query.get("prefix", [""])[0]
            found = "".join(
                f"<Contents><Key>{name.partition('/')[2]}</Key><Size>{len(content)}</Size><ETag>{_tag(content)}</ETag>"
                "<LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
                for name, content in sorted(state.objects.items())
                if name.partition("/")[2].startswith(prefix)
            )
            self._answer(200, f"<ListBucketResult><IsTruncated>false</IsTruncated>{found}</ListBucketResult>".encode())

        def _answer(self, status: int, body: bytes, content: bytes = b"", *, range_: str = "") -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("ETag", _tag(content))
            self.send_header("Last-Modified", formatdate(usegmt=True))
            if range_:
                self.send_header("Content-Range", range_)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    state.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield state
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _tag(content: bytes) -> str:
    return f'"{hashlib.md5(content).hexdigest()}"'


def _error(code: str) -> bytes:
    return f"<Error><Code>{code}</Code><Message>secret SECRET of KEY</Message></Error>".encode()

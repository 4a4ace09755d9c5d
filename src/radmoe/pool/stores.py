"""Paths into object storage: `s3://`, `gs://` and `az://`, by obstore.

A `StorePath` is to an object what a `Path` is to a file, as far as pools need one; files.py calls either. Objects appear whole or
not at all. Directories are prefixes: they are there as long as an object has them. Credentials come from the environment (such as
AWS_ACCESS_KEY_ID and AWS_ENDPOINT_URL), and no message repeats what a store answers beyond the name of its error.
"""

from __future__ import annotations

import io
import os
import re
import stat
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import cache
from pathlib import Path, PosixPath
from typing import Any, BinaryIO

from radmoe.errors import InputError, PoolUnreachable
from radmoe.pool.limits import check_claim

RETRY: dict[str, Any] = {  # a store may be away for so long
    "max_retries": 1000,
    "retry_timeout": timedelta(seconds=120),
    "backoff": {"init_backoff": timedelta(seconds=0.1), "max_backoff": timedelta(seconds=2), "base": 2},
}
TIMEOUT = timedelta(seconds=30)  # of a request
_NEAR = 1 << 13  # ranges so close are one request
_READ_AHEAD = 1 << 17
_URL = re.compile(r"(s3|gs|az):/+[^/]")


def is_url(path: str | Path) -> bool:
    """Whether this names a place in object storage. A Path has made one slash of two."""
    return _URL.match(str(path)) is not None


class StorePath(PosixPath):
    """A path into a bucket, such as s3://bucket/pools/one."""

    def __str__(self) -> str:
        return re.sub("^([a-z0-9]+):/+", r"\1://", super().__str__())

    def __fspath__(self) -> str:
        return str(self)

    @property
    def key(self) -> str:
        return "/".join(self.parts[2:])

    @property
    def store(self) -> Any:
        return _store(f"{self.parts[0]}//{self.parts[1]}")

    def head(self) -> dict[str, Any]:
        """Its `size`, `e_tag`, `version` and `last_modified`."""
        import obstore

        with self._errors():
            return dict(obstore.head(self.store, self.key))

    def lstat(self) -> os.stat_result:
        head = self.head()
        seconds = int(head["last_modified"].timestamp())
        return os.stat_result((stat.S_IFREG | 0o644, 0, 0, 1, 0, 0, head["size"], seconds, seconds, seconds))

    def exists(self, **_: Any) -> bool:
        return self.is_dir()

    def is_dir(self, **_: Any) -> bool:
        return any(True for _ in self.walk_keys())

    def walk_keys(self) -> Iterator[StorePath]:
        """Every object under this prefix."""
        import obstore

        root = self.parts[0] + "//" + self.parts[1]
        with self._errors():
            for batch in obstore.list(self.store, self.key + "/"):
                yield from (StorePath(f"{root}/{entry['path']}") for entry in batch)

    def iterdir(self) -> Generator[StorePath, None, None]:
        yield from {self / path.parts[len(self.parts)]: None for path in self.walk_keys()}

    def mkdir(self, *_: Any, **__: Any) -> None:
        """Nothing needs to be made."""

    rmdir = mkdir

    def resolve(self, strict: bool = False) -> StorePath:
        return self

    absolute = resolve

    def unlink(self, missing_ok: bool = False) -> None:
        import obstore

        with self._errors():
            obstore.delete(self.store, self.key)

    def content(self) -> bytes:
        import obstore

        with self._errors():
            found = obstore.get(self.store, self.key)
            check_claim(self, f"{found.meta['size']:,} bytes", found.meta["size"])
            return bytes(found.bytes())

    def ranges(self, spans: Sequence[tuple[int, int]]) -> list[bytes]:
        """The bytes [start, stop) of each span. They are requested at the same time, and neighbours together."""
        import obstore

        starts, ends = zip(*spans, strict=True)
        with self._errors():
            return [*map(bytes, obstore.get_ranges(self.store, self.key, starts=starts, ends=ends, coalesce=_NEAR))]

    def put(
        self, content: bytes | BinaryIO, *, new: bool = False, over: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Store an object, and return its `e_tag` and `version`.

        If there must be none before (`new`), or only the one of this e_tag and version (`over`), and that is not so,
        FileExistsError is raised. An object of the same content counts as our own: a store may have taken it without an answer.
        """
        import obstore

        mode: Any = "create" if new else over or "overwrite"
        held = len(content) if isinstance(content, bytes) else content.seek(0, os.SEEK_END)
        try:
            with self._errors():
                if not isinstance(content, bytes):
                    content.seek(0)
                version = obstore.put(
                    self.store, self.key, content, mode=mode, use_multipart=None if mode == "overwrite" else False
                )
        except FileExistsError:
            with suppress(FileNotFoundError):  # it was another's, and is gone
                if isinstance(content, bytes) and self.content() == content:
                    return self.version()
            raise
        try:
            size = self.head()["size"]
        except FileNotFoundError:
            size = None
        if size != held:
            raise PoolUnreachable(f"{self}: the store said that it took {held} bytes, and has {size or 0}: use another")
        return {name: value for name, value in version.items() if value is not None}

    def version(self) -> dict[str, Any]:
        """The version of the object in the store. `put` takes it as `over`, to replace this version and no other."""
        head = self.head()
        return {name: head[name] for name in ("e_tag", "version") if head[name] is not None}

    def copy_from(self, source: StorePath) -> None:
        import obstore

        with self._errors():
            obstore.copy(self.store, source.key, self.key)

    def open_object(self) -> BinaryIO:
        """The object as a file that reads ranges as they are asked for."""
        return io.BufferedReader(_Object(self), _READ_AHEAD)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Map what obstore raises to FileNotFoundError, FileExistsError and PoolUnreachable."""
        from obstore.exceptions import AlreadyExistsError, BaseError, NotFoundError, PreconditionError

        try:
            yield
        except (FileNotFoundError, NotFoundError):
            raise FileNotFoundError(2, "there is no such object or bucket", str(self)) from None
        except (AlreadyExistsError, PreconditionError):
            raise FileExistsError(17, "another process has written it", str(self)) from None
        except (BaseError, TimeoutError) as e:
            raise PoolUnreachable(f"{self}: {_reason(str(e))}") from None


class _Object(io.RawIOBase):
    def __init__(self, path: StorePath) -> None:
        self._path, self._size, self._at = path, int(path.head()["size"]), 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = max(offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence], 0)
        return self._at

    def readinto(self, buffer: Any) -> int:
        stop = min(self._at + len(buffer), self._size)
        if stop <= self._at:
            return 0
        (piece,) = self._path.ranges([(self._at, stop)])
        buffer[: len(piece)] = piece
        self._at += len(piece)
        return len(piece)


@cache
def _store(root: str) -> Any:
    try:
        from obstore.exceptions import BaseError
        from obstore.store import from_url
    except ImportError:
        raise InputError(f"{root} needs obstore, which is not installed: pip install 'radmoe[store]'") from None
    plain = any(os.environ.get(name, "").startswith("http:") for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT"))
    try:
        return from_url(root, client_options={"timeout": TIMEOUT, "allow_http": plain}, retry_config=RETRY)  # type: ignore[call-overload]
    except BaseError as e:
        raise PoolUnreachable(f"{root}: {_reason(str(e))}") from None


def _reason(message: str) -> str:
    """What a store's error means, without what else its answer holds."""
    code = re.search(r"<Code>(\w+)</Code>", message) or re.search(r"status code: (\d+)", message)
    name = "" if code is None else f" ({code[1]})"
    if (
        name in (" (401)", " (403)")
        or "privileges" in message
        or "authenticat" in message
        or "credential" in message.lower()
    ):
        return f"the store refuses these credentials{name}: check those in the environment, and what they may do"
    if code is not None:
        return f"the store failed{name}: try again, or look at what it logs"
    if "HTTP error" in message or "timed out" in message or "timeout" in message:
        return "the store does not answer: check that it runs, and its address in the environment (AWS_ENDPOINT_URL)"
    return re.sub(r"\s+", " ", message.partition("\n\n")[0])[:200]

"""A directory that appears whole or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from radmoe.pool import files
from radmoe.system.scratch import Scratch


@contextmanager
def appearing(out: Path, purpose: str) -> Iterator[Path]:
    """A directory to write into beside `out`, whose place it takes at the end of the block. It is removed if the block fails.

    `purpose` is part of its name until then. `out` is missing or an empty directory.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    scratch = Scratch(out.parent, f".{out.name}.{purpose}-")
    try:
        yield scratch.path
        if out.exists():
            out.rmdir()
        scratch.path.rename(out)
        files.sync(out.parent)
    except BaseException:
        scratch.remove()
        raise
    scratch.release()

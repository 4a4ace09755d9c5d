"""What a program could leave behind on the machine."""

from __future__ import annotations

import os
from pathlib import Path

PLACES = ("/tmp", "/var/tmp", "/dev/shm", "/run", "/", "/dev", ".", "~")


def leftovers(uid: int | None = None) -> set[str]:
    """Files named hostile-*, mounts, System V objects, processes below this one, and those of one user."""
    there = {f"file {path}" for place in PLACES for path in Path(place).expanduser().glob("hostile-*")}
    there |= {f"mount {line}" for line in Path("/proc/self/mountinfo").read_text().splitlines()}
    for kind in ("shm", "msg", "sem"):
        names, *lines = (line.split() for line in Path(f"/proc/sysvipc/{kind}").read_text().splitlines())
        objects = [dict(zip(names, line, strict=True)) for line in lines]
        there |= {f"{kind} {one[f'{kind}id' if kind != 'msg' else 'msqid']} of user {one['uid']}" for one in objects}
    return there | {f"process {pid}" for pid in processes(uid)}


def processes(uid: int | None = None) -> set[int]:
    """The processes that this one started, by way of others too, and those of one user."""
    parents, chosen = {}, set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                if entry.stat().st_uid == uid or f"\t{uid}\t" in (entry / "status").read_text():
                    chosen.add(int(entry.name))
            except OSError:
                pass  # it has just ended
    below, size = {os.getpid()}, 0
    while len(below) != size:
        size = len(below)
        below |= {pid for pid, parent in parents.items() if parent in below}
    return chosen | below - {os.getpid()}

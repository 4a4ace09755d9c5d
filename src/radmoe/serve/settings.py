"""The gateway's settings."""

from __future__ import annotations

import ipaddress
import math
import re
from dataclasses import dataclass
from pathlib import Path

from radmoe.errors import InputError
from radmoe.pool.files import in_store
from radmoe.types import PresetName, check_noise

_ORIGIN = re.compile(r"https?://[a-z0-9.\-\[\]:]+")  # as browsers write it, in lower case and without a path


@dataclass(frozen=True)
class Settings:
    """How the gateway serves.

    model             the model in this process or, with upstreams, the directory of the one that they serve
    engine            what runs the model in this process, by its name or the dotted path of its class
    upstreams         addresses of servers; none means that the model runs in this process
    keys              API keys that clients must have one of; none means that everybody may ask
    no_keys           whether everybody may ask at an address that is not this machine's own
    cors              origins of pages that a browser may let ask; "*" for all
    upstream_key      sent to the upstreams as a bearer token
    preset            how rollouts are read and compared where a request does not say
    rollouts          how many rollouts `MODEL#rad` samples; `most_rollouts` is the most that a request may ask for
    running, waiting  requests under way, and requests that may wait for their turn
    deadline          seconds that a request may take, its time in the queue included
    retries           how often a request that an upstream lost is sent again
    largest_body      bytes of a request
    largest_answer    bytes of an upstream's answer; all that are being read at a time may have twice as many together
    keep_alive        seconds between the comments of a stream while rollouts are sampled
    calibration       a file of `radmoe calibrate`, which says how sure picks of its preset are
    noise             numeric noise of densities, as radmoe doctor measures it; answers say which picks are ahead by less
    record            the pool that every served group is kept in
    keep              days after which a group is deleted from it
    recent            selections that the page at / shows
    log_prompts       whether prompts and picks go into the log
    batch_size        rollouts that the model in this process samples at a time
    """

    model: str | None = None
    engine: str = "transformers"
    upstreams: tuple[str, ...] = ()
    host: str = "127.0.0.1"
    port: int = 8100  # that of vllm serve is 8000
    keys: tuple[str, ...] = ()
    no_keys: bool = False
    cors: tuple[str, ...] = ()
    upstream_key: str | None = None
    preset: PresetName = "paper"
    rollouts: int = 16
    most_rollouts: int = 64
    running: int = 32
    waiting: int = 128
    deadline: float = 600.0
    retries: int = 3
    largest_body: int = 4 << 20
    largest_answer: int = 256 << 20
    keep_alive: float = 5.0
    calibration: Path | None = None
    noise: float | None = None
    record: Path | None = None
    keep: float | None = None
    recent: int = 100
    log_prompts: bool = False
    batch_size: int = 64
    device: str = "cpu"
    threads: int | None = None

    def __post_init__(self) -> None:
        if self.model is None and not self.upstreams:
            raise InputError("nothing to serve: give --model lab-qwen, or --upstream http://localhost:8000")
        for name, least in (
            ("rollouts", 2),
            ("most_rollouts", 2),
            ("running", 1),
            ("waiting", 0),
            ("retries", 0),
            ("largest_body", 1024),
            ("largest_answer", 1 << 20),
            ("recent", 0),
            ("batch_size", 1),
        ):
            if getattr(self, name) < least:
                raise InputError(f"{name.replace('_', ' ')} must be at least {least}, got {getattr(self, name)}")
        check_noise(self.noise)
        if self.rollouts > self.most_rollouts:
            raise InputError(f"{self.rollouts} rollouts by default are more than the {self.most_rollouts} allowed")
        if not 0 <= self.port < 1 << 16:
            raise InputError(f"port must lie in [0, 65536), got {self.port}")
        for name in ("deadline", "keep_alive"):
            if not 0 < getattr(self, name) < math.inf:
                raise InputError(f"{name.replace('_', ' ')} must be a positive number of seconds")
        if self.keep is not None and not 0 < self.keep < math.inf:
            raise InputError(f"--keep takes a positive number of days, got {self.keep:g}")
        if self.keep is not None and (self.record is None or in_store(self.record)):
            raise InputError("--keep deletes from the pool of --record, on a disk alone: give one, or leave --keep out")
        if any(
            not key or len(key) > 512 or not key.isascii() or not key.isprintable() or " " in key for key in self.keys
        ):
            raise InputError("an API key must be printable ASCII without spaces, 1 to 512 characters")
        if self.keys and self.no_keys:
            raise InputError("--keys and --no-keys contradict each other: give one of them")
        if not (self.keys or self.no_keys or _is_local(self.host)):
            raise InputError(
                f"without keys everybody who reaches {self.host or 'this machine'} could ask: give --keys FILE, or --no-keys if "
                "that is meant"
            )
        for origin in self.cors:
            if origin != "*" and not _ORIGIN.fullmatch(origin):
                raise InputError(
                    f"--cors takes the origin of a page, such as https://example.org, or *, got {origin!r}"
                )
        if "*" in self.cors and not self.keys:
            raise InputError(
                "--cors * lets every page that a browser has open ask: give --keys FILE with it, or name the page"
            )


def _is_local(host: str) -> bool:
    """Whether only this machine can reach what listens on this host."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:  # another name, which may be anywhere
        return False


def read_keys(path: Path) -> tuple[str, ...]:
    """The API keys in a file, one a line; lines that begin with # are left out."""
    lines = [line.strip() for line in path.read_text("utf-8").splitlines()]
    keys = tuple(line for line in lines if line and not line.startswith("#"))
    if not keys:
        raise InputError(f"{path} holds no API key: write one a line, or leave --keys out")
    return keys

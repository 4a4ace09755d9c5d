"""Metrics for Prometheus, and the log: a line of JSON per event on stderr."""

from __future__ import annotations

import logging
import threading
import traceback
from contextlib import suppress
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from radmoe.serve.api_errors import ApiError, internal
from radmoe.system.printing import json_text, say

if TYPE_CHECKING:
    from collections.abc import Iterator

    from radmoe.serve.admission import Gate
    from radmoe.serve.backends import Backend, RequestProgress

REQUEST_ID: ContextVar[str | None] = ContextVar("request_id", default=None)  # of the request that is being answered
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
_LONGEST = {"detail": 2000, "reason": 4000, "trace": 20_000}  # characters of texts that others may have written


def log(event: str, *, level: str = "info", **fields: Any) -> None:
    """Write one line of JSON, with the id of the request that it is about.

    Fields that are None are left out, and of very long texts only the end is kept.
    """
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    shown = {
        name: _end(value, _LONGEST[name]) if isinstance(value, str) and name in _LONGEST else value
        for name, value in ({"request_id": REQUEST_ID.get()} | fields).items()
        if value is not None and value != ""
    }
    with suppress(OSError, ValueError):  # a log that cannot be written fails no request
        say(json_text({"time": now, "level": level, "event": event} | shown), err=True)


def log_error(error: BaseException, **fields: Any) -> None:
    """Log an unexpected error with its reason and traceback."""
    trace = "".join(traceback.format_exception(error))
    log("error", level="error", reason=f"{type(error).__name__}: {error}", trace=trace, **fields)


def as_fault(error: BaseException) -> ApiError:
    """The error that a client is told of; what it is not told goes to the log."""
    if not isinstance(error, ApiError):
        log_error(error)
        return internal("")
    if error.detail:
        log("fault", level="warning", code=error.code, detail=error.detail)
    return error


def _end(text: str, most: int) -> str:
    return text if len(text) <= most else f"...{text[-most:]}"


class Lines(logging.Handler):
    """A logging handler that writes what libraries log as lines of JSON."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            message = record.getMessage()
        except Exception:  # arguments that do not fit the text
            message = str(record.msg)
        trace = "".join(traceback.format_exception(*record.exc_info)) if record.exc_info and record.exc_info[1] else ""
        log("library", level=record.levelname.lower(), logger=record.name, detail=message, trace=trace)


def log_as_json() -> None:
    """Let everything that this process logs be lines of JSON: loggers of libraries, warnings, and errors of threads.

    To be called again once libraries are there that bring handlers of their own, as transformers does.
    """
    root = logging.getLogger()
    if not any(isinstance(handler, Lines) for handler in root.handlers):
        root.handlers = [Lines(logging.WARNING)]
    for logger in list(root.manager.loggerDict.values()):
        if isinstance(logger, logging.Logger) and logger.handlers:
            logger.handlers, logger.propagate = [], True
    logging.captureWarnings(True)
    threading.excepthook = lambda failed: log_error(failed.exc_value or SystemExit(), thread=str(failed.thread))


class Metrics:
    """The gateway's counters. Every app has its own registry, so that several may live in one process."""

    def __init__(self, gate: Gate, backend: Backend) -> None:
        self._registry = CollectorRegistry()
        own: dict[str, Any] = {"registry": self._registry}
        self.requests = Counter("radmoe_requests", "Requests answered.", ("route", "mode", "status"), **own)
        self.picks = Counter("radmoe_picks", "Best-of-N answers by how they were chosen.", ("method",), **own)
        self.rollouts = Counter("radmoe_rollouts", "Rollouts sampled for best-of-N.", **own)
        self.tokens = Counter("radmoe_tokens", "Tokens sampled for best-of-N.", **own)
        self.gone = Counter("radmoe_clients_gone", "Requests whose client left before the answer.", **own)
        self.unrecorded = Counter("radmoe_unrecorded", "Groups that could not be written to the pool.", **own)
        self._seconds = {
            part: Histogram(f"radmoe_{part}_seconds", text, ("mode",), buckets=_SECONDS, **own)
            for part, text in (
                ("request", "From the request's arrival to its answer."),
                ("queue", "Waiting for a turn."),
                ("upstream", "Waiting for what samples."),
                ("own", "The gateway's own work: everything but queue and upstream."),
            )
        }
        self._registry.register(_Levels(gate, backend))

    def time(self, mode: str, progress: RequestProgress) -> None:
        """Record how long a request took in total, in the queue and at servers."""
        total = progress.seconds
        parts = {"queue": progress.queue_seconds, "upstream": progress.upstream_seconds}
        for part, seconds in (parts | {"request": total, "own": max(total - sum(parts.values()), 0.0)}).items():
            self._seconds[part].labels(mode).observe(seconds)

    def answered(self) -> dict[str, int]:
        """How many requests ended with each status."""
        counts: dict[str, int] = {}
        for sample in (sample for family in self.requests.collect() for sample in family.samples):
            if sample.name.endswith("_total"):
                counts[sample.labels["status"]] = counts.get(sample.labels["status"], 0) + int(sample.value)
        return counts

    def text(self) -> bytes:
        """All metrics in Prometheus' format."""
        return generate_latest(self._registry)


class _Levels(Collector):
    """Gauges that are read when Prometheus asks."""

    def __init__(self, gate: Gate, backend: Backend) -> None:
        self._gate, self._backend = gate, backend

    def collect(self) -> Iterator[GaugeMetricFamily]:
        yield GaugeMetricFamily("radmoe_running", "Requests under way.", value=self._gate.running)
        yield GaugeMetricFamily("radmoe_waiting", "Requests in the queue.", value=self._gate.waiting)
        up = GaugeMetricFamily("radmoe_upstream_up", "Whether an upstream is up.", labels=("upstream",))
        load = GaugeMetricFamily(
            "radmoe_upstream_load", "Requests that an upstream has under way.", labels=("upstream",)
        )
        for name, well, under_way in self._backend.loads():
            up.add_metric((name,), float(well))
            load.add_metric((name,), float(under_way))
        yield from (up, load)

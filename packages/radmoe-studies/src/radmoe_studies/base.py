"""What a study is: claims and their rules, what it needs, what it reads, and a function from evidence to findings.

A new study is one module in `paper/`, or in `beyond/` where the paper has no such analysis, with a function under
`@study(...)` (CONTRIBUTING.md shows one with a figure).
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any

from radmoe.errors import InputError, MethodUnavailable
from radmoe.evaluation.table import Table
from radmoe_studies.decision import Claim, ClaimDecision
from radmoe_studies.evidence import Evidence, Panel, Request
from radmoe_studies.gains import of_domains
from radmoe_studies.needs import Need
from radmoe_studies.pooling import EVERYONE, THINKING, Population, others
from radmoe_studies.report.figures import Chart


@dataclass(frozen=True)
class Options:
    """How much work a study does. `quick` does a tenth of it, for a first impression."""

    resamples: int = 5_000  # p-values down to .0002, so that Holm over some hundred claims can still decide
    subcohorts: int = 200
    seed: int = 0
    quick: bool = False

    def __post_init__(self) -> None:
        for name in ("resamples", "subcohorts"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1, got {getattr(self, name)}")

    @property
    def draws(self) -> int:
        """The number of resamples for every interval, at least 200: with fewer its ends would be noise."""
        return max(self.resamples // 10, 200) if self.quick else max(self.resamples, 200)

    @property
    def samples(self) -> int:
        """Sub-cohorts of every problem."""
        return max(self.subcohorts // 10, 10) if self.quick else self.subcohorts


@dataclass(frozen=True)
class Findings:
    """What a study found: tables, figures as data, a decision per claim, and remarks."""

    tables: tuple[Table, ...] = ()
    charts: tuple[Chart, ...] = ()
    decisions: tuple[ClaimDecision, ...] = ()
    notes: tuple[str, ...] = ()


Run = Callable[[Evidence, Options], Findings]
PanelRun = Callable[[list[Panel], Options], Findings]
Requests = Callable[[Panel], Iterable[Request]]


@dataclass(frozen=True)
class Study:
    """A study by its number and name in the list of studies; without claims it only reports."""

    number: int
    name: str
    title: str
    where: str  # in the paper
    run: Run
    requests: Requests
    claims: tuple[Claim, ...] = ()
    needs: tuple[Need, ...] = ()
    population: Population = EVERYONE

    def unmet(self, evidence: Evidence) -> list[str]:
        """What the pools lack for it, each with the way to get it; empty where it can run.

        Where some of the pools are of its population, only these count.
        """
        inside = [panel for panel in evidence.panels if self.population.holds(panel)]
        asked = replace(evidence, panels=inside or evidence.panels)
        return [reason for need in self.needs if (reason := need.lacking(asked)) is not None]


STUDIES: dict[str, Study] = {}
NO_DOMAIN = "There is no problem of math, science or code."


def load() -> dict[str, Study]:
    """Import every module of `paper` and `beyond`, and return all studies in the order of their numbers."""
    from radmoe_studies import beyond, paper

    for package in (paper, beyond):
        for module in pkgutil.iter_modules(package.__path__):
            importlib.import_module(f"{package.__name__}.{module.name}")
    return dict(sorted(STUDIES.items(), key=lambda item: item[1].number))


def _nothing(_: Panel) -> Iterable[Request]:
    return ()


def study(
    number: int,
    title: str,
    *,
    where: str,
    requests: Requests = _nothing,
    claims: Iterable[Claim] = (),
    needs: Iterable[Need] = (),
    population: Population = EVERYONE,
) -> Callable[[Run], Run]:
    """Register a function as a study of its own name. It is always called with the configurations of the population alone."""
    needs = tuple(needs)

    def register(run: Run) -> Run:
        name = run.__name__.replace("_", "-")
        taken = next((s for s in STUDIES.values() if number == s.number or name == s.name), None)
        if taken is not None and taken.run.__qualname__ != run.__qualname__:
            raise InputError(f"study {number} {name!r} is taken by {taken.number} {taken.name!r}")
        within = _within(run, population, needs)
        STUDIES[name] = Study(number, name, title, where, within, requests, tuple(claims), needs, population)
        return within

    return register


def domain_study(number: int, title: str, **rest: Any) -> Callable[[PanelRun], Run]:
    """Register a function of the thinking-class panels whose problems have a delimiter; `rest` is as for `study`."""

    def register(run: PanelRun) -> Run:
        @wraps(run)
        def ran(evidence: Evidence, options: Options) -> Findings:
            panels = of_domains(evidence.panels)
            return run(panels, options) if panels else Findings(notes=(NO_DOMAIN,))

        return study(number, title, population=THINKING, **rest)(ran)

    return register


def _within(run: Run, population: Population, needs: tuple[Need, ...]) -> Run:
    """Wraps a study: it runs on its population, and once more on the other configurations for tables without claims."""

    @wraps(run)
    def ran(evidence: Evidence, options: Options) -> Findings:
        inside = replace(evidence, panels=[panel for panel in evidence.panels if population.holds(panel)])
        outside = others(evidence.panels, population)
        found = Findings(notes=(f"No claim is judged: they are about {population.name}, and these pools have none.",))
        if inside.panels:
            found = run(inside, options)
        tables = list(found.tables)
        for name, panels in outside.items():
            part = replace(evidence, panels=panels)
            try:
                beside = Findings() if any(need.lacking(part) for need in needs) else run(part, options)
            except MethodUnavailable:
                continue
            tables += [
                replace(
                    table,
                    key=f"{table.key}-{name.split()[0]}",
                    title=f"{table.title}: {name}, which no claim is about",
                    rows=tuple(row for row in table.rows if "paper" not in row.section),
                )
                for table in beside.tables
            ]
        return replace(found, tables=tuple(tables))

    return ran


def study_named(name: str) -> Study:
    """A study by its name or number."""
    studies = load()
    for one in studies.values():
        if name in (one.name, str(one.number)):
            return one
    raise InputError(f"unknown study {name!r}: use one of {', '.join(studies)}, or all")


@dataclass(frozen=True)
class StudyRun:
    """The findings of a study, or what it lacked. `failed` says that its needs were met and it could not run all the same."""

    study: Study
    findings: Findings | None = None
    lacking: tuple[str, ...] = ()
    failed: bool = False

"""Studies on pools: what they need is checked, routing is read once for all of them, and each gives its findings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from radmoe.errors import InputError, MethodUnavailable
from radmoe_studies.base import Options, Study, StudyRun, load, study_named
from radmoe_studies.evidence import Evidence, Panel, Progress, Request


def chosen(names: Sequence[str]) -> list[Study]:
    """Studies by name or number, in their order; "all" is every one."""
    if "all" in names:
        return list(load().values())
    return sorted({study_named(name).name: study_named(name) for name in names}.values(), key=lambda one: one.number)


def run_studies(
    studies: Sequence[Study],
    evidence: Evidence,
    options: Options,
    *,
    reading: Progress = lambda done, of: None,
) -> Iterator[StudyRun]:
    """Run each study, in order. One whose needs are not met is reported as such, and the others go on."""
    if not studies:
        raise InputError("no study was named: use radmoe study --list to see them")
    lacking = {study.name: study.unmet(evidence) for study in studies}
    able = [study for study in studies if not lacking[study.name]]

    def requests(panel: Panel) -> Iterable[Request]:
        return [request for study in able for request in study.requests(panel)]

    evidence.read(requests, reading)
    for study in studies:
        if lacking[study.name]:
            yield StudyRun(study, lacking=tuple(lacking[study.name]))
            continue
        try:
            yield StudyRun(study, study.run(evidence, options))
        except MethodUnavailable as error:
            yield StudyRun(study, lacking=(str(error),), failed=True)

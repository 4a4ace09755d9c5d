"""Running studies: what is lacking is said with the way to get it, and the others go on."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from planted_panels import evidence, panel
from radmoe.errors import InputError
from radmoe_studies.base import Options, load, study_named
from radmoe_studies.paper.readouts import READOUTS
from radmoe_studies.run import chosen, run_studies

STUDIES = load()


def test_a_study_that_lacks_something_says_what_and_the_others_go_on() -> None:
    only_code = evidence(panel(kind="code", dataset="code", requests=READOUTS))
    (ran,) = run_studies(chosen(["readouts"]), only_code, Options(quick=True))
    assert ran.findings is None
    assert ran.lacking[0].startswith("needs answers that can be counted")
    assert "radmoe capture --task" in ran.lacking[0]


def test_studies_are_named_by_name_or_number_once_and_in_order() -> None:
    assert [study.name for study in chosen(["2", "readouts"])] == ["readouts"]
    assert [study.name for study in chosen(["all"])] == list(STUDIES)
    with pytest.raises(InputError, match=r"unknown study 'nope': use one of .*readouts"):
        study_named("nope")


@pytest.mark.parametrize("name", STUDIES)
def test_every_claim_says_its_rule_the_papers_number_and_its_place(name: str) -> None:
    study = STUDIES[name]
    assert study.title
    assert study.where
    for claim in study.claims:
        assert claim.key.startswith(f"{name}.")
        assert min(len(claim.sentence), len(claim.paper), len(claim.where)) > 0
        assert len(claim.rule.split()) >= 12
        assert claim.rule.endswith(".")


def test_no_two_studies_or_claims_share_a_name() -> None:
    numbers = [study.number for study in STUDIES.values()]
    claims = [claim.key for study in STUDIES.values() for claim in study.claims]
    assert len(set(numbers)) == len(numbers)
    assert len(set(claims)) == len(claims)


def test_quick_draws_a_tenth_and_never_too_few() -> None:
    assert (Options(quick=True).draws, Options(quick=True).samples) == (500, 20)
    assert Options(resamples=1).draws == 200
    with pytest.raises(InputError, match="resamples must be at least 1, got 0"):
        Options(resamples=0)


@pytest.mark.parametrize(
    ("numbers", "population"),
    [
        ((2, 3, 5, *range(11, 17), *range(21, 27)), "thinking-class configurations"),
        ((4,), "thinking configurations of the Qwen models"),
    ],
)
def test_the_papers_population_is_declared_and_named_in_every_rule(numbers: tuple[int, ...], population: str) -> None:
    for study in (one for one in STUDIES.values() if one.number in numbers):
        assert study.population.name == population, study.name
        assert all(population in claim.rule for claim in study.claims), study.name


def test_no_rule_asks_for_more_than_nothing() -> None:
    """A rule that says "above 0" or "below 0" would be met by +0.0 [0, 0]."""
    rules = {claim.key: claim.rule for study in STUDIES.values() for claim in study.claims}
    assert not [key for key, rule in rules.items() if re.search(r"\b(above|below) 0(?![.\d])", rule)]


def test_each_claim_of_the_paper_counts_once_and_the_agents_are_among_them() -> None:
    keys = [claim.key for study in STUDIES.values() for claim in study.claims]
    assert sum(key.startswith("agent.") for key in keys) == 5
    assert not [key for key in keys if key.startswith("cross-anchor.")]
    assert sum(key.startswith("effort.") for key in keys) == 3


def test_an_agents_trajectories_are_seen_by_their_own_study_alone() -> None:
    math = panel(problems=12, requests=READOUTS)
    agents = replace(math, setting=replace(math.setting, kind="agent"))
    for study in STUDIES.values():
        assert study.population.holds(agents) == (study.name == "agent")
        assert study.population.holds(math) == (study.name != "agent")
    alone = study_named("main").run(evidence(agents), Options(quick=True))
    assert alone.notes == ("No claim is judged: they are about all configurations, and these pools have none.",)
    assert study_named("agent").unmet(evidence(math)) != []

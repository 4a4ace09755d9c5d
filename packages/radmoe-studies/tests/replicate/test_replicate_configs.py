"""The paper's configurations as data: what it prints for each, found in its tables."""

from __future__ import annotations

import pytest

from radmoe.errors import InputError
from radmoe.problems.datasets import BENCHMARKS
from radmoe.types import RouterShape
from radmoe_studies.audit.paper import load
from radmoe_studies.replicate.configs import CONFIGS, TASKS, config_named

OURS = [config for config in CONFIGS.values() if not config.rehearses]


def test_the_papers_ten_configurations_are_there_with_its_sampling_and_every_data_set() -> None:
    assert {(one.family, one.variant) for one in OURS} == {(one.family, one.variant) for one in load().configs}
    assert {(one.temperature, one.top_p, one.context, one.n) for one in OURS} == {(0.7, 0.9, 32_768, 64)}
    assert set(TASKS) == set(BENCHMARKS)
    for one in OURS:
        printed = load().row("configs", family=one.family, variant=one.variant)["model"]
        assert not printed.startswith("Qwen") or one.model.startswith(f"Qwen/{printed}")


def test_printed_rows_are_those_of_the_papers_tables() -> None:
    one = config_named("qwen3-30b-a3b-thinking").printed("aime_2025")
    assert one.cell == {"average": 0.807, "strict": 0.933, "strict+dc": 0.933}  # 93.3 (+12.6)
    assert (one.pool_name, one.pool_n) == ("math", 118)
    assert one.pool == {"average": 0.8, "majority": 0.881, "rad": 0.915, "rad+dc": 0.915}
    assert one.family["rad"] == 0.85
    code = config_named("gpt-oss-20b-low").printed("livecodebench_v5")
    assert code.pool == {"average": 0.335, "rad": 0.389, "rad+dc": 0.419}  # no vote over programs
    assert set(code.family) == {"average", "rad", "rad+dc"}


@pytest.mark.parametrize("config", OURS, ids=lambda one: one.name)
def test_every_cell_of_every_configuration_has_its_rows(config) -> None:  # type: ignore[no-untyped-def]
    for task in config.tasks:
        paper = config.printed(task)
        assert set(paper.cell) == {"average", "strict", "strict+dc"}
        assert 0 < paper.cell["average"] < 1
        assert {"average", "rad"} <= set(paper.pool) & set(paper.family)
    assert (
        config.router
        == {
            "gpt-oss-20B": RouterShape(24, 32, 4),
            "gpt-oss-120B": RouterShape(36, 128, 4),
            "Qwen3-30B-A3B": RouterShape(48, 128, 8),
            "Qwen3-Next-80B": RouterShape(48, 512, 10),
        }[config.family]
    )


def test_a_task_is_named_by_a_beginning_that_no_other_has() -> None:
    config = OURS[0]
    assert [config.task(word) for word in ("gpqa", "livecodebench", "aime_2025")] == [
        "gpqa_diamond",
        "livecodebench_v5",
        "aime_2025",
    ]
    for word in ("aime", "", "math-2"):
        with pytest.raises(InputError, match=r"has no task .*: use some of aime_2024, aime_2025"):
            config.task(word)
    with pytest.raises(InputError, match=r"unknown configuration 'gpt-5': use one of gpt-oss-20b-low"):
        config_named("gpt-5")

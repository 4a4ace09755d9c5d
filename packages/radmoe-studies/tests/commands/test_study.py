"""`radmoe study` as it is typed: list, one, all, bad names, pools that lack something, twice from the cache."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from planted_pools import graded_pool, write_pool
from radmoe_lab import planted
from radmoe_lab.planted import Planted


@pytest.fixture(scope="module")
def pools(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    place = tmp_path_factory.mktemp("studied")
    math, code = (
        Planted(problems=8, rollouts=16, tokens=140, kind=kind, seed=i) for i, kind in enumerate(("math", "code"))
    )
    return [
        graded_pool(place / "math", list(planted.groups(math)), style="thinking", task="math-2"),
        graded_pool(place / "code", list(planted.groups(code)), style="thinking", task="code"),
    ]


def radmoe(*words: object, cache: Path) -> subprocess.CompletedProcess[str]:
    import os

    return subprocess.run(
        [sys.executable, "-m", "radmoe", "study", *map(str, words)],
        capture_output=True,
        text=True,
        env=os.environ | {"RADMOE_CACHE": str(cache), "COLUMNS": "120"},
        check=False,
    )


@pytest.mark.slow
def test_the_list_names_every_study_and_its_needs(tmp_path: Path) -> None:
    from radmoe_studies.base import load

    text = radmoe("--list", cache=tmp_path).stdout
    assert [line.split()[1] for line in text.splitlines()] == list(load())
    rows = json.loads(radmoe("--list", "--json", cache=tmp_path).stdout)
    assert {row["name"] for row in rows} == set(load())


@pytest.mark.slow
def test_a_study_prints_its_tables_and_verdicts_and_reads_nothing_twice(pools: list[Path], tmp_path: Path) -> None:
    first = radmoe("readouts", pools[0], "--quick", cache=tmp_path)
    assert first.returncode == 0, first.stderr
    assert "Purity of the nearest neighbour" in first.stdout
    assert "640 windows asked for, 640 read, 0 from the cache" in first.stderr
    second = radmoe("readouts", pools[0], "--quick", cache=tmp_path)
    assert second.stdout == first.stdout
    assert "0 read, 640 from the cache" in second.stderr


@pytest.mark.slow
def test_a_study_that_cannot_run_says_what_is_missing_and_the_exit_code_tells(
    pools: list[Path], tmp_path: Path
) -> None:
    done = radmoe("readouts", pools[1], "--quick", "--json", cache=tmp_path)
    assert done.returncode == 1
    (body,) = json.loads(done.stdout)
    assert "needs answers that can be counted" in body["lacking"][0]


@pytest.mark.slow
def test_all_goes_on_without_the_studies_that_pools_do_not_allow(pools: list[Path], tmp_path: Path) -> None:
    done = radmoe("all", pools[0], "--quick", "--out", tmp_path / "out", cache=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "effort was left out: needs one model at three efforts" in done.stderr
    assert (tmp_path / "out" / "kernel.json").exists()
    assert "- 18 effort: needs" in (tmp_path / "out" / "claims.md").read_text()


@pytest.mark.slow
def test_files_go_where_they_are_wanted(pools: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = radmoe("2", *pools, "--quick", "--out", out, cache=tmp_path / "cache")
    assert done.returncode == 0, done.stderr
    assert {"claims.md", "readouts.md", "readouts.png", "readouts.svg", "readouts.csv", "readouts.json"} <= {
        file.name for file in out.iterdir()
    }


@pytest.mark.slow
def test_the_ledger_counts_verdicts_and_says_how_fresh_pools_were_sampled(tmp_path: Path) -> None:
    """A new seed at the paper's sampling, with an instruct configuration and an earlier ledger's verdicts beside it."""
    way = {"temperature": 0.7, "top_p": 0.9, "seed": 41}
    pools = [
        graded_pool(
            tmp_path / style,
            list(planted.groups(Planted(problems=12, rollouts=16, tokens=140, seed=41 + i))),
            style=style,
            task="math-2",
            sampling={"sampled": way},
        )
        for i, style in enumerate(("thinking", "instruct"))
    ]
    readings = tmp_path / "readings.toml"
    readings.write_text('[before]\n"readouts.window-wins" = "cannot tell"\n')
    words = ("2,6", *pools, "--quick", "--out", tmp_path / "out", "--readings", readings)
    done = radmoe(*words, cache=tmp_path / "cache")
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "out" / "claims.md").read_text()
    assert "sampled at temperature 0.7, top-p 0.9, seed 41: 2" in text
    counts = next(line for line in text.splitlines() if line.startswith("**6 claims: ")).strip("*")
    assert counts in " ".join(done.stdout.split())
    assert "| cannot tell | **" in text
    assert "instruct configurations, which no claim is about" in (tmp_path / "out" / "readouts.md").read_text()
    body = json.loads((tmp_path / "out" / "readouts.json").read_text())
    assert {decision["n"] for decision in body["decisions"]} == {12}
    assert "- main.defined-on-code: not judged on these pools; the page of study 6 says why" in text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nope", "POOL"], "unknown study 'nope'"),
        (["readouts"], "needs a study and pools"),
        (["readouts", "POOL", "POOL"], "is given twice"),
        (["readouts", "POOL", "--resamples", "0"], "resamples must be at least 1, got 0"),
        (["readouts", "nowhere"], "nowhere"),
        (["readouts", "UNGRADED"], "grade the pool first"),
    ],
)
def test_bad_input_is_one_line(words: list[str], message: str, pools: list[Path], tmp_path: Path) -> None:
    if "UNGRADED" in words:
        write_pool(tmp_path / "ungraded", list(planted.groups(Planted(problems=2, rollouts=4, tokens=60))))
    places = {"POOL": str(pools[0]), "UNGRADED": str(tmp_path / "ungraded")}
    done = radmoe(*[places.get(word, word) for word in words], cache=tmp_path / "cache")
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr

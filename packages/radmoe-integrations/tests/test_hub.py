"""A pool becomes a data set that `datasets` reads, and the same pool again; what somebody changed in it is one line."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from command_line import radmoe
from full_pools import KINDS, PROBLEMS, content, fill
from planted_pools import graded_pool, labels, write_pool
from radmoe import open_pool, select
from radmoe.errors import InputError, PoolError
from radmoe.grading.labels import Label, read_labels, write_labels
from radmoe.pool import Pool, Profile, schema
from radmoe_integrations.hub import export, layout
from radmoe_integrations.hub.export import export_pool
from radmoe_integrations.hub.reading import import_hub
from radmoe_lab.planted import PlantedGroup
from small_pools import rollout, writer


def loaded(directory: Path, tmp_path: Path, *config: str) -> Any:
    """The data set as `datasets` reads it, without a network."""
    from datasets import load_dataset

    return load_dataset(str(directory), *config, split="train", cache_dir=str(tmp_path / "cache"))


def round_trip(path: Path, tmp_path: Path, **options: bool) -> Pool:
    export_pool(open_pool(path), tmp_path / "dataset", **options)
    return import_hub(tmp_path / "dataset", tmp_path / "back")


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_whole_export_read_back_is_the_same_pool(tmp_path: Path, kind: str) -> None:
    before = open_pool(fill(tmp_path / "pool", kind))
    back = round_trip(before.path, tmp_path, full=True, texts=True)
    assert back.verify() == []
    assert back.problems == before.problems
    for problem in PROBLEMS:
        wanted = [(fields, columns, told | {"host": None}) for fields, columns, told in content(before, problem)]
        assert wanted == [(fields, columns, {"host": None} | told) for fields, columns, told in content(back, problem)]
        for one, other in zip(back.group(problem).rollouts, before.group(problem).rollouts, strict=True):
            assert one.steps == other.steps
    for key in ("run", "vocab", "layers", "experts", "top_k", "columns"):
        assert back.meta[key] == before.meta[key]


@pytest.mark.slow
def test_what_is_exported_without_being_asked_are_windows_without_texts(
    made: list[PlantedGroup], tmp_path: Path
) -> None:
    path = graded_pool(tmp_path / "pool", made)
    before, back = open_pool(path), round_trip(path, tmp_path)
    assert back.verify() == []
    assert back.profile == Profile(readouts=("delimiter@16",))
    assert back.runs(["text", "prompt", "extra"]).to_pylist() == [dict.fromkeys(("text", "prompt", "extra"))] * 48
    for problem in before.problems:
        for one, other in zip(back.group(problem).rollouts, before.group(problem).rollouts, strict=True):
            assert np.array_equal(one.token_ids, other.token_ids)
            assert np.array_equal(one.sampled_logprobs, other.sampled_logprobs)
            assert np.array_equal(one.topk_logprobs, other.topk_logprobs)
            assert len(one.positions) < len(one)
            assert all(map(np.array_equal, one.rows_of(one.positions), other.rows_of(one.positions)))
        for preset in ("paper", "paper+dc", "strict"):
            ours, theirs = (select(pool.group(problem), preset=preset) for pool in (back, before))
            assert (ours.index, ours.basin, ours.anchors) == (theirs.index, theirs.basin, theirs.anchors)
            assert np.array_equal(ours.density, theirs.density, equal_nan=True)
    assert read_labels(back.path) == read_labels(path)


def test_the_windows_are_those_of_the_kinds(made: list[PlantedGroup], tmp_path: Path) -> None:
    """Where nobody said of which kind answers are, their markers do."""
    path = write_pool(tmp_path / "pool", made, record_kind=False)
    assert export_pool(open_pool(path), tmp_path / "unsaid").readouts == ("delimiter@16",)
    assert set(import_hub(tmp_path / "unsaid", tmp_path / "said").kinds.values()) == {"math"}
    with writer(tmp_path / "odd") as odd:
        odd.add("a", rollout(9))
    with pytest.raises(InputError, match="nobody knows which windows matter: export it with --full"):
        export_pool(open_pool(tmp_path / "odd"), tmp_path / "unknown")
    export_pool(open_pool(tmp_path / "odd"), tmp_path / "odd whole", full=True)
    mixed = open_pool(fill(tmp_path / "mixed"))
    given = open_pool(fill(tmp_path / "given")).group("c")
    with pytest.raises(InputError, match="has answers of kinds agent, math, which have no marker in common"):
        export_pool(mixed, tmp_path / "unknown")
    export_pool(mixed.delete(["a", "b", "d"]), tmp_path / "agents")
    back = import_hub(tmp_path / "agents", tmp_path / "back")
    assert (back.profile.readouts, back.verify()) == (("boundary@union",), [])
    for one, other in zip(back.group("c").rollouts, given.rollouts, strict=True):
        assert [step.start for step in one.steps] == [step.start for step in other.steps]
        assert [step.given for step in one.steps] == [(), ()]  # what it was told is left out as prompts are


@pytest.mark.slow
def test_datasets_reads_it_with_labels_apart(made: list[PlantedGroup], tmp_path: Path) -> None:
    before = open_pool(graded_pool(tmp_path / "pool", made))
    export_pool(before, tmp_path / "dataset", full=True)
    rows = loaded(tmp_path / "dataset", tmp_path)
    assert "correct" not in rows.column_names
    rows = rows.with_format("numpy")
    assert len(rows) == len(before)
    (problem, *_), at = before.problems, 0
    for other in before.group(problem).rollouts:
        row, at = rows[at], at + 1
        assert row["problem_id"] == problem
        assert np.array_equal(row["token_ids"], other.token_ids)
        assert np.array_equal(row["expert_ids"].reshape(other.expert_ids.shape), other.expert_ids)
        assert np.array_equal(row["weights"].reshape(other.expert_ids.shape), other.weights)
    answers = loaded(tmp_path / "dataset", tmp_path, "labels").to_list()
    assert answers == [label._asdict() for label in labels(made)]


def test_many_files_are_one_data_set(made: list[PlantedGroup], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, "FILE_BYTES", 1)
    monkeypatch.setattr(export, "_GROUP_BYTES", 200_000)
    before = open_pool(write_pool(tmp_path / "pool", made))
    back = round_trip(before.path, tmp_path, full=True, texts=True)
    names = sorted(path.name for path in (tmp_path / "dataset/data").iterdir())
    assert len(names) > 3
    assert names == [f"rollouts-{i:05}-of-{len(names):05}.parquet" for i in range(len(names))]
    assert [content(back, problem) for problem in back.problems] == [content(before, p) for p in before.problems]


def test_the_card_says_what_it_is_and_what_it_gives_away(made: list[PlantedGroup], tmp_path: Path) -> None:
    model = "evil\n---\nlicense: mit\n\x7f\u2028```"
    path = graded_pool(tmp_path / "pool", made, model=model, sampling={"temperature": 0.7})
    export_pool(open_pool(path), tmp_path / "dataset")
    card = (tmp_path / "dataset/README.md").read_text()
    _, front, text = card.split("---\n", 2)
    fields = yaml.safe_load(front)
    assert "license" not in fields
    assert "# license: " in front
    assert [each["config_name"] for each in fields["configs"]] == ["rollouts", "labels"]
    assert fields["configs"][0]["default"] is True
    assert "routing alone gives tokens back" in text
    assert "It is not anonymous." in text
    assert json.loads(text.split("```json\n")[1].split("\n```")[0])["run"] == {
        "model": model,
        "sampling": {"temperature": 0.7},
        "style": None,
        "task": None,
    }
    description = schema.read_json(tmp_path / "dataset" / layout.DESCRIPTION)
    for name, entry in description["files"].items():
        assert f"| {name} | {entry.get('rows', '')} | {entry['bytes']} | {entry['sha256']} |" in text
        assert (tmp_path / "dataset" / name).stat().st_size == entry["bytes"]


@pytest.mark.slow
def test_the_command_warns_on_screen_and_refuses_in_one_line(pool_path: Path, tmp_path: Path) -> None:
    done = radmoe("export", pool_path, "--hub", tmp_path / "dataset")
    assert done.stdout.startswith(
        f"{tmp_path / 'dataset'}: 4 problems, 48 rollouts, 7,409 tokens, windows of delimiter@16"
    )
    assert "routing alone gives tokens back" in done.stderr
    again = radmoe("export", pool_path, "--hub", tmp_path / "dataset", expect=2)
    assert (
        again.stderr == f"radmoe: error: {tmp_path / 'dataset'} exists already: give a new directory to export into\n"
    )
    facts = json.loads(radmoe("export", pool_path, "--hub", tmp_path / "whole", "--full", "--text", "--json").stdout)
    assert (facts["readouts"], facts["texts"], facts["labels"]) == (None, True, 0)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dataset", "pool", "whole"]


def test_a_pool_without_rollouts_is_refused(tmp_path: Path) -> None:
    writer(tmp_path / "pool").close()
    with pytest.raises(InputError, match="holds no rollouts"):
        export_pool(open_pool(tmp_path / "pool"), tmp_path / "dataset")
    assert not (tmp_path / "dataset").exists()


def test_a_failed_export_leaves_nothing(pool_path: Path, tmp_path: Path) -> None:
    (pool_path / schema.LABELS).write_bytes(b"PAR1 no")
    with pytest.raises(PoolError, match="grade the pool again"):
        export_pool(open_pool(pool_path), tmp_path / "dataset")
    assert [path.name for path in tmp_path.iterdir()] == ["pool"]


ROLLOUTS = "data/rollouts-00000-of-00001.parquet"
LABELS = "data/labels-00000-of-00001.parquet"
Change = Callable[[Path], object]


def describes(**changes: Any) -> Change:
    """Whoever makes a data set makes its checksums too."""

    def change(dataset: Path) -> None:
        path = dataset / layout.DESCRIPTION
        path.write_bytes(schema.seal_json(schema.read_json(path) | changes))

    return change


def sealed(dataset: Path, name: str) -> None:
    entries = schema.read_json(dataset / layout.DESCRIPTION)["files"]
    describes(files=entries | {name: entries.get(name, {}) | layout.entry(dataset / name)})(dataset)


def rows(change: Callable[[dict[str, Any]], object], name: str = ROLLOUTS) -> Change:
    """Change the first row."""

    def apply(dataset: Path) -> None:
        table = pq.read_table(dataset / name)
        found = table.to_pylist()
        change(found[0])
        pq.write_table(pa.Table.from_pylist(found, table.schema), dataset / name)
        sealed(dataset, name)

    return apply


def cut(dataset: Path, *, seal: bool = True) -> None:
    data = (dataset / ROLLOUTS).read_bytes()
    (dataset / ROLLOUTS).write_bytes(data[: len(data) * 2 // 3])
    if seal:
        sealed(dataset, ROLLOUTS)


def fifo(dataset: Path) -> None:
    (dataset / ROLLOUTS).unlink()
    os.mkfifo(dataset / ROLLOUTS)


def link(dataset: Path) -> None:
    (dataset / ROLLOUTS).rename(dataset / "elsewhere")
    (dataset / ROLLOUTS).symlink_to(dataset / "elsewhere")


def endless(dataset: Path) -> None:
    """Two million rows in some thousand bytes."""
    fields = pq.read_schema(dataset / ROLLOUTS)
    many = pa.table([pa.nulls(2_000_000, one.type) for one in fields], schema=fields)
    pq.write_table(many, dataset / ROLLOUTS, row_group_size=len(many))
    sealed(dataset, ROLLOUTS)


def twice(dataset: Path) -> None:
    table = pq.read_table(dataset / ROLLOUTS)
    pq.write_table(pa.concat_tables([table, table]), dataset / ROLLOUTS)
    sealed(dataset, ROLLOUTS)


def renamed(dataset: Path) -> None:
    files = schema.read_json(dataset / layout.DESCRIPTION)["files"]
    describes(files={f"../{name}": entry for name, entry in files.items()})(dataset)


HOSTILE: dict[str, tuple[Change, str]] = {
    "no description": (lambda at: (at / layout.DESCRIPTION).unlink(), "has no radmoe.json"),
    "another layout": (describes(layout=2), "describes no data set of layout 1"),
    "a description of something else": (describes(files=[]), "describes no data set"),
    "a path": (renamed, "lists '../data/"),
    "no tokenizer": (describes(files={}), "has no tokenizer.json"),
    "another tokenizer": (describes(vocab="0" * 64), "is another vocabulary"),
    "damaged": (lambda at: cut(at, seal=False), "is not the file that radmoe.json lists"),
    "cut": (cut, "cannot be read"),
    "a FIFO": (fifo, "is a FIFO"),
    "a link": (link, "is a link"),
    "more rows than there are bytes": (endless, "values in a row group, which takes .* of memory"),
    "twice": (twice, "already holds rollout 0"),
    "a shape that lies": (
        describes(columns={schema.EXPERT_IDS.name: [3, 5], schema.TOKEN_IDS.name: []}),
        "rollout 0 of problem 'a'",
    ),
    "a router that lies": (describes(experts=2), "rollout 0 of problem 'a'"),
    "a profile that lies": (
        describes(
            columns={schema.EXPERT_IDS.name: [3, 2], schema.TOKEN_IDS.name: [], schema.TOKEN_INDEX.name: []},
        ),
        "no column positions",
    ),
    "no name": (rows(lambda row: row.update(problem_id=None)), "it lacks its name"),
    "an expert that is none": (rows(lambda row: row["expert_ids"].__setitem__(0, 99)), "rollout 0 of problem 'a'"),
    "a token that is none": (rows(lambda row: row["token_ids"].__setitem__(0, 10**6)), "vocabulary ends at"),
    "NaN": (rows(lambda row: row["weights"].__setitem__(0, float("nan"))), "rollout 0 of problem 'a'"),
    "a null among numbers": (rows(lambda row: row["token_ids"].__setitem__(0, None)), "null among its numbers"),
    "no numbers": (rows(lambda row: row.update(token_ids=None)), "rollout 0 of problem 'a'"),
    "half of its rows": (rows(lambda row: row.update(expert_ids=row["expert_ids"][:6])), "rollout 0 of problem 'a'"),
    "a kind that is none": (rows(lambda row: row.update(kind="poem")), "unknown kind|poem"),
    "labels of others": (rows(lambda row: row.update(problem_id="z"), LABELS), "labels are not of these rollouts"),
    "labels without a verdict": (rows(lambda row: row.update(correct=None), LABELS), "labels are not of these"),
}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("hostile")
    with writer(place / "pool") as pool:
        for problem, index in (("a", 0), ("a", 1), ("b", 0)):
            pool.add(problem, rollout(9, seed=index), rollout_index=index, kind="math")
    write_labels(place / "pool", [Label("a", 0, "5", True), Label("b", 0, None, False)])
    export_pool(open_pool(place / "pool"), place / "dataset", full=True)
    return place / "dataset"


@pytest.mark.parametrize("name", HOSTILE)
def test_a_data_set_that_lies_is_one_line_and_no_pool(
    dataset: Path, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    change, says = HOSTILE[name]
    shutil.copytree(dataset, tmp_path / "dataset")
    change(tmp_path / "dataset")
    monkeypatch.setenv("RADMOE_MEMORY_LIMIT", "100M")
    with pytest.raises((InputError, PoolError), match=says) as error:
        import_hub(tmp_path / "dataset", tmp_path / "back")
    assert len(str(error.value).splitlines()) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["dataset"]


def test_what_is_there_already_is_not_imported_over(dataset: Path, pool_path: Path) -> None:
    before = open_pool(pool_path).problems
    with pytest.raises(InputError, match="exists already: give a new pool"):
        import_hub(dataset, pool_path)
    assert open_pool(pool_path).problems == before


@pytest.mark.slow
def test_the_command_reads_a_data_set_back_and_refuses_what_it_cannot_use(dataset: Path, tmp_path: Path) -> None:
    done = radmoe("import", "hub", dataset, "--out", tmp_path / "back")
    assert done.stdout.startswith(f"{tmp_path / 'back'}: 2 problems, ")
    assert open_pool(tmp_path / "back").verify() == []
    assert (
        "give it and --out alone"
        in radmoe("import", "hub", dataset, "--kind", "math", "--out", tmp_path / "b", expect=2).stderr
    )
    assert "--model is missing" in radmoe("import", "slime", dataset, "--out", tmp_path / "b", expect=2).stderr
    assert "or hub, got 'foo'" in radmoe("import", "foo", dataset, "--out", tmp_path / "b", expect=2).stderr
    assert not (tmp_path / "b").exists()

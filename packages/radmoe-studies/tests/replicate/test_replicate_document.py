"""replication.json is read strictly, and pooled only where pooling means something."""

from __future__ import annotations

import copy
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from radmoe.errors import InputError
from radmoe_studies.replicate.document import merge, read_document
from replications import cell, replication

MATH = cell("aime_2025", "math", 12, {"likelihood": 0.5}, choice=0.4)
CODE = cell("livecodebench_v5", "code", 11, {})
WHOLE = replication(MATH, CODE)


def written(place: Path, body: Any, name: str = "one.json") -> Path:
    path = place / name
    path.write_text(body if isinstance(body, str) else json.dumps(body))
    return path


def changed(change: Callable[[dict[str, Any], dict[str, Any]], object]) -> dict[str, Any]:
    """The document with a change to it, or to its first cell."""
    body = copy.deepcopy(WHOLE)
    change(body, body["runs"][0]["cells"][0])
    return body


def test_what_was_written_reads_back(tmp_path: Path) -> None:
    assert read_document(written(tmp_path, WHOLE)) == WHOLE


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda b, c: b.update(version=2), "is of version 2, and 1 is read"),
        (lambda b, c: b.update(format="x"), "is no replication"),
        (lambda b, c: b.update(config="gpt-5"), "unknown configuration 'gpt-5'"),
        (lambda b, c: b.update(more=1), "it must be an object of format, version"),
        (lambda b, c: b["sampling"].update(top_p=0.95), "not that of qwen3-30b-a3b-thinking"),
        (lambda b, c: b["sampling"].update(n=8), "does not count 8 rollouts"),
        (lambda b, c: b.update(runs=[]), "runs is [], it must be a list that is not empty"),
        (lambda b, c: b["runs"][0].update(seed=-1), "runs[0].seed is -1, it must be a whole number from 0 up"),
        (lambda b, c: b["runs"][0].update(seed=True), "runs[0].seed is True"),
        (lambda b, c: b["runs"].append(b["runs"][0]), "two runs have the seed 1"),
        (lambda b, c: b["runs"][0]["cells"].append(c), "has the tasks aime_2025, livecodebench_v5, aime_2025"),
        (lambda b, c: c.update(task="math-2"), "has the tasks math-2"),
        (lambda b, c: c.update(kind="text"), "another kind than math, choice, code"),
        (lambda b, c: c.update(hits={}), "or no method"),
        (lambda b, c: c["problems"].append(c["problems"].pop(0)) or c["problems"].__setitem__(0, c["problems"][1]), "a problem twice"),
        (lambda b, c: c["hits"]["rad"].pop(), "lists of different lengths"),
        (lambda b, c: c["choice"]["shown"].pop(), "lists of different lengths"),
        (lambda b, c: c["hits"]["rad"].__setitem__(0, 1.5), "hits.rad[0] is 1.5, it must be a number from 0 to 1"),
        (lambda b, c: c["hits"]["rad"].__setitem__(0, None), "hits.rad[0] is None"),
        (lambda b, c: c["hits"].update({"a\nb": [1.0] * 12}), "a name in runs[0].cells[0].hits is 'a\\nb'"),
        (lambda b, c: c["counts"]["right"].__setitem__(0, 65), "does not count 64 rollouts"),
        (lambda b, c: c["counts"].pop("basin"), "an object of rollouts, right"),
        (lambda b, c: c["tokens"].__setitem__(0, 10**30), "tokens[0] is 1000000000000000000000000000000"),
    ],
)  # fmt: skip
def test_a_file_of_another_version_or_with_a_wrong_value_is_one_line(
    change: Callable[..., object], message: str, tmp_path: Path
) -> None:
    path = written(tmp_path, changed(change))
    with pytest.raises(InputError) as raised:
        read_document(path)
    assert message in str(raised.value)
    assert str(raised.value).startswith(str(path))
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 500


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("[1]", "is no replication"),
        (json.dumps(WHOLE).replace("1000.0", "NaN").replace("500.0", "NaN"), "NaN is no number"),
        (json.dumps(WHOLE).replace("500.0", "1e999"), "tokens[0] is inf"),
        (json.dumps(WHOLE).replace('"seed": 1', '"seed": ' + "9" * 5_000), "is not JSON"),
        (json.dumps(WHOLE)[:-50], "is not JSON"),
    ],
)
def test_text_that_is_no_document_is_one_line(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"one\.json") as raised:
        read_document(written(tmp_path, text))
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@pytest.mark.slow
@given(st.data())
def test_any_value_in_any_place_is_refused_or_read_back(data: st.DataObject) -> None:
    """Whatever is put anywhere: an InputError, or a document that is as it was written."""
    body = copy.deepcopy(WHOLE)
    place: Any = body
    while True:
        key = data.draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
        if not isinstance(place[key], dict | list) or not place[key] or data.draw(st.booleans()):
            break
        place = place[key]
    place[key] = data.draw(JSON)
    with tempfile.TemporaryDirectory() as folder:
        path = written(Path(folder), body)
        said = ""
        try:
            assert read_document(path) == json.loads(path.read_text())
        except InputError as error:
            said = str(error)
        assert "\n" not in said


def test_runs_of_several_people_are_pooled_and_can_be_pooled_again() -> None:
    others = [replication(MATH, seed=seed) for seed in (2, 3)]
    pooled = merge({"one.json": WHOLE, "two.json": others[0]})
    assert [run["seed"] for run in pooled["runs"]] == [1, 2]
    again = merge({"pooled.json": pooled, "three.json": others[1]})
    assert [run["seed"] for run in again["runs"]] == [1, 2, 3]
    assert again["config"] == WHOLE["config"]


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (WHOLE, "two runs have the seed 1, so that their rollouts are not independent"),
        (replication(MATH | {"questions": "1" * 64}, seed=2), "they were asked other problems of aime_2025"),
        (replication(cell("aime_2025", "math", 13, {}), seed=2), "they were asked other problems of aime_2025"),
        (replication(cell("aime_2025", "math", 12, {}, n=8), seed=2, n=8), "two.json has sampling"),
        (replication(MATH, seed=2) | {"config": "gpt-oss-20b-low"}, "has config gpt-oss-20b-low and one.json"),
    ],
)
def test_what_cannot_be_pooled_is_one_line(other: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as raised:
        merge({"one.json": WHOLE, "two.json": other})
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)
    with pytest.raises(InputError, match=r"two files or more, got one\.json"):
        merge({"one.json": WHOLE})

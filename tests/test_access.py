"""The access boundary: what selects never sees what grades, in the code and on disk."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import radmoe
from radmoe.grading.labels import Label, read_labels, write_labels
from radmoe.pool import open_pool, schema
from radmoe.selection.rule import PRESETS
from radmoe.selection.selector import select

ROOT = Path(__file__).parent.parent
SOURCES = [
    "src",
    "packages/radmoe-agent/src",
    "packages/radmoe-integrations/src",
    "packages/radmoe-lab/src",
    "packages/radmoe-llamacpp/src",
    "packages/radmoe-studies/src",
]


@pytest.mark.slow
def test_deleting_the_labels_changes_no_selection(pool_path: Path) -> None:
    pool = open_pool(pool_path)
    labels = [Label(p, i, "7", i % 2 == 0) for p in pool.problems for i in pool.rollout_indices(p)]
    write_labels(pool_path, labels)
    assert read_labels(pool_path)["planted-0000"][1] == Label("planted-0000", 1, "7", False)
    ways = [*({"fusion": c} for c in (None, "conf50", "ranksum")), *({"preset": name} for name in PRESETS)]
    before = [select(g, **way) for g in open_pool(pool_path).groups() for way in ways]  # type: ignore[arg-type]
    (pool_path / schema.LABELS).unlink()
    after = [select(g, **way) for g in open_pool(pool_path).groups() for way in ways]  # type: ignore[arg-type]
    for a, b in zip(before, after, strict=True):
        assert (a.index, a.basin, a.neighbours, a.anchors) == (b.index, b.basin, b.neighbours, b.anchors)
        assert np.array_equal(a.density, b.density, equal_nan=True)


def test_selecting_reads_no_text(pool_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    read = radmoe.Pool.runs

    def watched(self: radmoe.Pool, columns: list[str] | None = None, filters: object = None) -> object:
        seen.extend(columns or ["every column"])
        return read(self, columns, filters)  # type: ignore[arg-type]

    monkeypatch.setattr(radmoe.Pool, "runs", watched)
    for group in open_pool(pool_path).groups():
        select(group)
        for preset in PRESETS:  # one spells the answers from the tokens: it reads no recorded text either
            select(group, preset=preset)
    assert set(seen) == {"problem_id", "problem_index", "kind", "rollout_index", "shard", "row", "tokens"}


@pytest.fixture(scope="module")
def copied_house(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the source to break, in which every contract holds."""
    root = tmp_path_factory.mktemp("house")
    for source in SOURCES:
        for file in (ROOT / source).rglob("*.py"):
            (copy := root / file.relative_to(ROOT)).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, copy)
    shutil.copy(ROOT / "pyproject.toml", root)
    assert _lint(root).returncode == 0
    return root


SELECTS = "Access boundary: what selects, captures or serves never sees what grades"
GOLD = "Capture never sees gold answers"
COMPANIONS = "The product does not know its companions, and the lab alone knows them all"
SELECTION = [
    "anchors",
    "readout",
    "kernels/jaccard",
    "confidence",
    "kinds",
    "online",
    "calibration",
    "regime",
    "closing",
    "overlap",
    "rule",
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "what", "contract"),
    [
        *((f"radmoe/selection/{module}", "radmoe.grading.labels", SELECTS) for module in SELECTION),
        *(("radmoe/selection/selector", f"radmoe.{what}", SELECTS) for what in ("grading.labels", "evaluation")),
        *(
            ("radmoe/selection/selector", f"radmoe.evaluation.{room}", SELECTS)
            for room in ("baselines", "stats", "cohort")
        ),
        ("radmoe/capture/run", "radmoe.evaluation.methods", SELECTS),
        ("radmoe/serve/best_of", "radmoe.grading.labels", SELECTS),
        ("radmoe_agent/patches", "radmoe.grading.labels", SELECTS),
        ("radmoe/capture/run", "radmoe.problems.gold", GOLD),
        ("radmoe/engines/base", "radmoe.problems.gold", GOLD),
        ("radmoe/problems/questions", "radmoe.problems.gold", GOLD),
        ("radmoe/cli/capture", "radmoe_lab.tasks", COMPANIONS),
        ("radmoe/report/explorer", "radmoe_studies.base", COMPANIONS),
        ("radmoe_studies/base", "radmoe_lab.planted", COMPANIONS),
        ("radmoe_agent/patches", "radmoe_studies.base", COMPANIONS),
        ("radmoe_llamacpp/engine", "radmoe.grading.labels", SELECTS),
    ],
)
def test_a_contract_fails_when_a_module_imports_what_it_may_not_know(
    module: str, what: str, contract: str, copied_house: Path
) -> None:
    (file,) = (path for source in SOURCES if (path := copied_house / source / f"{module}.py").exists())
    whole = file.read_text()
    try:
        file.write_text(f"{whole}\nimport {what}\n")
        broken = _lint(copied_house)
    finally:
        file.write_text(whole)
    assert broken.returncode != 0
    assert f"{contract} BROKEN" in broken.stdout


def _lint(directory: Path) -> subprocess.CompletedProcess[str]:
    code = f"import sys; sys.path[:0] = {SOURCES}; from importlinter.cli import lint_imports_command; lint_imports_command()"
    command = [sys.executable, "-c", code, "--no-cache"]
    return subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)


def test_every_public_name_can_be_imported() -> None:
    for name in radmoe.__all__:
        assert getattr(radmoe, name).__name__ == name
    assert set(radmoe.__all__) <= set(dir(radmoe))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        radmoe.nothing  # noqa: B018

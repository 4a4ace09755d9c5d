"""The example notebook runs from its first cell to its last, as a reader runs it, and ships without outputs."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

NOTEBOOK = Path(__file__).parents[1] / "docs" / "example.ipynb"


def cells() -> list[dict[str, Any]]:
    return [cell for cell in json.loads(NOTEBOOK.read_text())["cells"] if cell["cell_type"] == "code"]


def shown(source: str, names: dict[str, Any]) -> Any:
    """Run a cell as a kernel does, and return the value of its last line where that is an expression."""
    body = ast.parse(source).body
    last = body.pop() if isinstance(body[-1], ast.Expr) else None
    exec(compile(ast.Module(body, []), str(NOTEBOOK), "exec"), names)
    return None if last is None else eval(compile(ast.Expression(last.value), str(NOTEBOOK), "eval"), names)


def test_the_notebook_holds_no_outputs() -> None:
    assert [cell["id"] for cell in cells() if cell["outputs"] or cell["execution_count"] is not None] == []


@pytest.mark.slow
def test_every_cell_runs_and_what_it_shows_is_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for cell in cells():
        value = shown("".join(cell["source"]), names)
        assert len(repr(value)) < 400
        if hasattr(value, "_repr_html_"):
            assert value._repr_html_().startswith("<")
    assert "\\boxed{" in names["pick"].text
    assert len(names["picks"]) == 4
    assert 0 <= value["average"] <= value["oracle"] <= 1

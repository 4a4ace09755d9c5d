"""A user's type checker knows what radmoe's public names are: the package is typed for those who install it, too."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

CLIENT = Path(__file__).parent / "data" / "client.py"


@pytest.mark.slow
def test_pyright_agrees_with_a_program_that_uses_the_package(tmp_path: Path) -> None:
    (tmp_path / "client.py").write_text(CLIENT.read_text())  # elsewhere: the package is found as it is installed
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, "client.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    findings = json.loads(done.stdout)["generalDiagnostics"] if done.stdout else done.stderr
    assert done.returncode == 0, findings
    assert json.loads(done.stdout)["summary"]["filesAnalyzed"] == 1

"""What is released: wheels that work in environments with nothing but what each says it needs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from email.parser import Parser
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import tiny_moe
from command_line import lines, radmoe
from planted_trajectories import write_runs
from radmoe_lab.gguf import write_gguf

ROOT = Path(__file__).parents[2]
COMPANIONS = ("radmoe-agent", "radmoe-integrations", "radmoe-lab", "radmoe-llamacpp", "radmoe-studies")
SOURCES = {"radmoe": ".", **{name: f"packages/{name}" for name in COMPANIONS}}

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A wheel of each distribution, built from a copy, because setuptools leaves a build directory beside what it builds."""
    tree, out = tmp_path_factory.mktemp("tree"), tmp_path_factory.mktemp("wheels")
    for name in ("pyproject.toml", "README.md", "LICENSE", "src", "packages"):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, tree / name)
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(out)]
    subprocess.run([*pip, *(str(tree / place) for place in SOURCES.values())], check=True, timeout=300)
    return {name: next(out.glob(f"{name.replace('-', '_')}-[0-9]*.whl")) for name in SOURCES}


def needed(wheels: list[Path]) -> set[str]:
    """The names of all distributions that these wheels need, directly or not, themselves left out."""
    own: dict[str, list[str]] = {}
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            (metadata,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
            read = Parser().parsestr(archive.read(metadata).decode())
        own[read["Name"]] = read.get_all("Requires-Dist", [])
    seen, ahead = set(), [(name, "") for name in own]
    while ahead:
        name, extra = ahead.pop()
        if (name, extra) not in seen:
            seen.add((name, extra))
            for one in map(Requirement, own[name] if name in own else distribution(name).requires or ()):
                if one.marker is None or one.marker.evaluate({"extra": extra}):
                    ahead += [(canonicalize_name(one.name), chosen) for chosen in ("", *one.extras)]
    return {name for name, _ in seen} - set(own)


def environment(home: Path, wheels: list[Path]) -> Path:
    """A virtual environment with these wheels and what they need: copies of it would be 2 GB, so links to it."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True)
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(home)}))
    for name in needed(wheels):
        found = distribution(name)
        for top in {file.parts[0] for file in found.files or ()} - {"..", "__pycache__"}:
            if not (packages / top).exists():
                (packages / top).symlink_to(found.locate_file(top))
    pip = [sys.executable, "-m", "pip", "--python", str(home / "bin" / "python"), "install", "--quiet", "--no-index"]
    subprocess.run([*pip, "--no-deps", "--no-compile", *map(str, wheels)], check=True)
    return home / "bin"


def run(home: Path, *words: object, expect: int = 0) -> subprocess.CompletedProcess[str]:
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [str(home / "radmoe"), *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=variables | {"COLUMNS": "160"})
    assert done.returncode == expect, done.stdout + done.stderr
    return done


def installed(home: Path, *modules: str) -> list[str]:
    """Those of these modules that the environment has."""
    code = (
        "import sys; from importlib.util import find_spec; print(*(name for name in sys.argv[1:] if find_spec(name)))"
    )
    done = subprocess.run([home / "python", "-I", "-c", code, *modules], capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_the_base_wheel_is_small_and_alone_selects_from_a_pool(
    wheels: dict[str, Path], shared_pool: Path, tmp_path: Path
) -> None:
    assert wheels["radmoe"].stat().st_size <= 2 << 20
    assert {name.partition("/")[0].partition("-")[0] for name in zipfile.ZipFile(wheels["radmoe"]).namelist()} == {
        "radmoe"
    }
    home = environment(tmp_path / "venv", [wheels["radmoe"]])
    companions = [name.replace("-", "_") for name in COMPANIONS]
    assert installed(home, "torch", "transformers", "scipy", "matplotlib", "xllamacpp", *companions) == []
    assert lines(run(home, "select", shared_pool, "--json")) == lines(radmoe("select", shared_pool, "--json"))
    assert "every byte as written" in run(home, "verify", shared_pool).stdout
    assert run(home, "evaluate", shared_pool, expect=2).stderr.endswith("pip install 'radmoe[eval]'\n")
    capture = ("capture", "--model", "lab-qwen", "--out", tmp_path / "p")
    assert "pip install radmoe-lab" in run(home, *capture, "--task", "math-1", expect=2).stderr
    gguf = run(home, "doctor", "llamacpp", "--model", "model.gguf", expect=2)
    assert gguf.stderr.endswith("pip install radmoe-llamacpp\n")
    cluster = run(home, "replay", shared_pool, "--model", "model", "--on", "ray", "--out", tmp_path / "p", expect=2)
    assert cluster.stderr.endswith(
        "--on ray is part of radmoe-integrations, which is not installed: pip install 'radmoe[ray]'\n"
    )


def test_the_integrations_know_clusters_and_say_what_these_need(
    wheels: dict[str, Path], shared_pool: Path, tmp_path: Path
) -> None:
    home = environment(tmp_path / "venv", [wheels["radmoe"], wheels["radmoe-integrations"]])
    assert installed(home, "ray", "torch", "scipy", "radmoe_lab", "radmoe_studies") == ["scipy"]
    cluster = run(home, "replay", shared_pool, "--model", "model", "--on", "ray", "--out", tmp_path / "p", expect=2)
    assert cluster.stderr.endswith("--on ray needs Ray: pip install 'radmoe[ray]'\n")


def test_the_lab_samples_and_grades_without_the_studies(wheels: dict[str, Path], tmp_path: Path) -> None:
    with zipfile.ZipFile(wheels["radmoe-lab"]) as archive:
        assert sum(name.endswith("model.safetensors") for name in archive.namelist()) == 4
        assert "radmoe_lab/tokenizers/chatml.json" in archive.namelist()
    home = environment(tmp_path / "venv", [wheels["radmoe"], wheels["radmoe-lab"]])
    assert installed(home, "torch", "scipy", "sklearn", "radmoe_agent", "radmoe_studies") == ["torch", "scipy"]
    pool = tmp_path / "pool"
    run(home, "capture", "--model", "lab-qwen", "--task", "math-1", "--limit", 1, "-n", 4, "--out", pool)
    assert json.loads(run(home, "grade", pool, "--json").stdout)["graded"] == 4
    assert len(lines(run(home, "select", pool, "--json"))) == 1
    assert run(home, "study", "all", expect=2).stderr.endswith("pip install radmoe-studies\n")
    assert run(home, "agent", "demo", expect=2).stderr.endswith("pip install radmoe-agent\n")


def test_the_studies_audit_and_study_without_the_lab(
    wheels: dict[str, Path], shared_pool: Path, tmp_path: Path
) -> None:
    home = environment(tmp_path / "venv", [wheels["radmoe"], wheels["radmoe-studies"]])
    assert installed(home, "torch", "scipy", "sklearn", "radmoe_agent", "radmoe_lab") == ["scipy", "sklearn"]
    assert "0.248" in run(home, "audit", "--out", tmp_path / "audit.md").stdout + (tmp_path / "audit.md").read_text()
    assert "same-token" in run(home, "study", "--list").stdout
    assert run(home, "demo", expect=2).stderr.endswith("pip install radmoe-lab\n")


def test_the_agent_selects_without_the_lab_and_the_studies(wheels: dict[str, Path], tmp_path: Path) -> None:
    write_runs(tmp_path / "runs")
    home = environment(tmp_path / "venv", [wheels["radmoe"], wheels["radmoe-agent"]])
    found = installed(home, "torch", "minisweagent", "sklearn", "radmoe_lab", "radmoe_studies")
    assert found == ["torch", "minisweagent"]
    run(home, "agent", "select", tmp_path / "runs")
    assert run(home, "agent", "demo", expect=2).stderr.endswith("pip install radmoe-lab\n")
    assert run(home, "agent", "evaluate", expect=2).stderr.endswith("pip install radmoe-studies\n")


def test_a_gguf_model_is_sampled_without_torch(wheels: dict[str, Path], tmp_path: Path) -> None:
    write_gguf(tiny_moe.model("qwen3-moe"), tiny_moe.tokenizer(chat=True), tmp_path / "tiny.gguf")
    (tmp_path / "mine.jsonl").write_text(json.dumps({"id": "a", "prompt": "2+3", "kind": "math"}) + "\n")
    home = environment(tmp_path / "venv", [wheels["radmoe"], wheels["radmoe-llamacpp"]])
    assert installed(home, "torch", "transformers", "xllamacpp", "radmoe_lab") == ["xllamacpp"]
    words = ("--engine", "llamacpp", "--model", tmp_path / "tiny.gguf", "--data", tmp_path / "mine.jsonl")
    run(home, "capture", *words, "-n", 2, "--max-tokens", 8, "--out", tmp_path / "pool")
    assert "every byte as written" in run(home, "verify", tmp_path / "pool").stdout

"""What other packages add: a package that is installed beside radmoe, one that is broken, one that is missing."""

from __future__ import annotations

import base64
import hashlib
import os
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from command_line import error, lines, radmoe, start
from radmoe.pool import open_pool

pytestmark = pytest.mark.slow

MINE = Path(__file__).parents[1] / "data" / "radmoe-mine"


def build(source: Path, out: Path) -> Path:
    """A wheel of a source tree with a pyproject.toml and one package: pip's own build would need the network."""
    project = tomllib.loads((source / "pyproject.toml").read_text())["project"]
    name, version = project["name"].replace("-", "_"), project["version"]
    groups = (
        f"[{group}]\n" + "".join(f"{key} = {value}\n" for key, value in entries.items())
        for group, entries in project["entry-points"].items()
    )
    files = {str(path.relative_to(source)): path.read_bytes() for path in sorted((source / name).rglob("*.py"))}
    info = f"{name}-{version}.dist-info"
    files[f"{info}/METADATA"] = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {version}\n".encode()
    files[f"{info}/WHEEL"] = b"Wheel-Version: 1.0\nGenerator: a test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    files[f"{info}/entry_points.txt"] = "".join(groups).encode()
    record = [
        f"{path},sha256={base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b'=').decode()},{len(data)}\n"
        for path, data in files.items()
    ]
    files[f"{info}/RECORD"] = "".join([*record, f"{info}/RECORD,,\n"]).encode()
    wheel = out / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, data in files.items():
            archive.writestr(path, data)
    return wheel


def install(source: Path, home: Path) -> Path:
    """Build a package and let pip install it into a directory of its own."""
    home.mkdir(parents=True)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index", "--no-deps"]
    subprocess.run([*pip, "--target", str(home / "installed"), str(build(source, home))], check=True)
    return home / "installed"


def write_package(home: Path, name: str, code: str) -> Path:
    """A package radmoe-NAME of one module, installed, with the plugin `radmoe_NAME:PLUGIN`."""
    module = f"radmoe_{name}"
    (package := home / "source" / module).mkdir(parents=True)
    (package / "__init__.py").write_text(code)
    (home / "source" / "pyproject.toml").write_text(
        f'[project]\nname = "radmoe-{name}"\nversion = "1.0"\n\n[project.entry-points.radmoe]\n{name} = "{module}:PLUGIN"\n'
    )
    return install(home / "source", home / "wheels")


# -- a package outside the repository ---------------------------------------------------------------


@pytest.fixture(scope="module")
def mine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install(MINE, tmp_path_factory.mktemp("outside") / "home")


@pytest.fixture(scope="module")
def captured(mine: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pool of the package's task, sampled by its engine, and graded by its gold answers."""
    out = tmp_path_factory.mktemp("captured") / "pool"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(mine))
        radmoe("capture", "--engine", "dice", "--model", "lab-qwen", "--task", "one-sum", "-n", 12, "--out", out)
    return out


@pytest.fixture
def installed(mine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(mine))


def test_without_the_package_nothing_of_it_is_known(shared_pool: Path, tmp_path: Path) -> None:
    assert "No such command 'hello'" in radmoe("hello", expect=2).stderr
    assert "unknown readout family 'mine'" in error(radmoe("select", shared_pool, "--readout", "mine@8", expect=2))
    capture = ("capture", "--model", "lab-qwen", "--out", tmp_path / "p")
    assert "unknown engine 'dice'" in error(radmoe(*capture, "--engine", "dice", "--task", "math-1", expect=2))
    assert "unknown task 'one-sum'" in error(radmoe(*capture, "--task", "one-sum", expect=2))


@pytest.mark.usefixtures("installed")
def test_a_command_of_an_installed_package_is_one_of_radmoe() -> None:
    assert "hello" in radmoe("--help").stdout
    assert radmoe("hello", "--name", "you").stdout == "hello, you\n"
    assert "radmoe hello --name you" in radmoe("hello", "--help").stdout


@pytest.mark.usefixtures("installed")
def test_help_lists_its_engine_and_its_task() -> None:
    said = radmoe("capture", "--help").stdout
    assert "dice" in said
    assert "one-sum" in said
    assert "one-sum" in radmoe("grade", "--help").stdout
    assert "dice" in radmoe("doctor", "--help").stdout


@pytest.mark.usefixtures("installed")
def test_its_engine_samples_its_task_which_is_graded(captured: Path) -> None:
    pool = open_pool(captured)
    assert (pool.model, pool.task, pool.problems) == ("dice", "one-sum", ["one-sum-small", "one-sum-large"])
    assert len(pool) == 24
    done = radmoe("grade", captured, "--json")
    assert '"graded": 24' in done.stdout
    assert "0 right" not in radmoe("grade", captured).stdout


@pytest.mark.usefixtures("installed")
def test_its_readout_selects(captured: Path) -> None:
    rows = lines(radmoe("select", captured, "--readout", "mine@8", "--json"))
    assert [(row["readout"], row["abstained"]) for row in rows] == [("mine@8", False)] * 2


@pytest.mark.usefixtures("installed")
def test_its_method_is_evaluated_with_the_others(captured: Path) -> None:
    (row,) = (line for line in radmoe("evaluate", captured, "--full").stdout.splitlines() if "middle length" in line)
    assert "nothing" in row


MADE = "from radmoe import Plugin\nPLUGIN = Plugin("


# -- packages that do not work ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("raise RuntimeError('out of order\\nsince Monday')", "out of order"),
        ("import no_such_library", "No module named 'no_such_library'"),
        ("PLUGIN = {}", "radmoe_broken:PLUGIN is a dict, not a radmoe.Plugin"),
        ("", "has no attribute 'PLUGIN'"),
        (f"{MADE}commands=None)", "commands of a Plugin are paths by name, got None"),
        (f"{MADE}tasks={{'a': 5}})", "tasks of a Plugin are paths by name, got {'a': 5}"),
        (f"{MADE}models={{'a': 'b.c'}})", "models of a Plugin are Models by name"),
        (f"{MADE}methods='abc')", "methods of a Plugin are paths in a list, got 'abc'"),
        (f"{MADE}engines={{5: 'a.b'}})", "engines of a Plugin have names of letters, digits, -, _, ., + and /, got 5"),
        (f"{MADE}engines={{'[/x]': 'a.b'}})", "got '[/x]'"),
        (f"{MADE}commands={{'\\x1b[2J': 'a.b'}})", r"got '\x1b[2J'"),
    ],
)
def test_a_broken_plugin_is_a_line_and_the_rest_works(
    mine: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code: str, why: str
) -> None:
    broken = write_package(tmp_path, "broken", code)
    monkeypatch.setenv("PYTHONPATH", f"{broken}{os.pathsep}{mine}")
    done = radmoe("hello")
    assert done.stdout == "hello, world\n"
    (line,) = done.stderr.splitlines()
    assert line.startswith("radmoe: warning: the plugin 'broken' of radmoe-broken cannot be loaded (")
    assert why in line
    assert line.endswith("): what it adds is missing")


PARTS = """
from radmoe import Plugin
PLUGIN = Plugin(
    commands={"hi": "radmoe_parts.nothing.command", "hey": "radmoe_parts.command"},
    engines={"gone": "radmoe_parts.nothing.Engine"},
    tasks={"gone": "radmoe_parts.NOTHING"},
    methods=("radmoe_parts.nothing",),
    readouts=("radmoe_parts.nothing",),
)
def command() -> None: ...
"""


def test_what_a_plugin_names_and_does_not_have_is_a_line_where_it_is_used(
    shared_pool: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Two commands: one is not there, one has no EXAMPLES. Neither ends a command that does not need it."""
    monkeypatch.setenv("PYTHONPATH", str(write_package(tmp_path, "parts", PARTS)))
    commands = [f"radmoe: warning: the command '{name}' of a plugin cannot be loaded (" for name in ("hi", "hey")]

    def said(*words: object, expect: int = 0) -> list[str]:
        told = radmoe(*words, expect=expect).stderr.splitlines()
        assert all(line.startswith(begins) for line, begins in zip(told, commands, strict=False))
        return told[2:]

    assert said("inspect", shared_pool) == []
    (warning, line) = said("select", shared_pool, "--readout", "gone@8", expect=2)
    assert warning.startswith(
        "radmoe: warning: the plugin module radmoe_parts.nothing cannot be loaded (No module named"
    )
    assert "unknown readout family 'gone'" in line
    capture = ("capture", "--model", "lab-qwen", "--out", tmp_path / "p")
    (line,) = said(*capture, "--task", "math-1", "--engine", "gone", expect=2)
    assert line.startswith("radmoe: error: cannot import the engine 'gone' (No module named 'radmoe_parts.nothing')")
    (line,) = said(*capture, "--task", "gone", expect=2)
    assert line.startswith("radmoe: error: task 'gone' cannot be imported (module 'radmoe_parts' has no attribute")
    methods = [line for line in said("evaluate", shared_pool, expect=2) if "warning" in line]
    assert methods == [warning]


SAYS = """
from radmoe import Plugin
EXAMPLES = ("radmoe greet",)
def command() -> None:
    "Greet."
    print("NAME")
PLUGIN = Plugin(commands={"greet": "radmoe_NAME.command", "verify": "radmoe_NAME.command"},
                engines={"transformers": "radmoe_NAME.nothing"}, tasks={"aime_2024": "radmoe_NAME.nothing"})
"""


def test_a_name_that_is_taken_twice_stays_the_firsts(
    shared_pool: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Packages come in the order of their plugins' names, and radmoe before all of them."""
    homes = [write_package(tmp_path / name, name, SAYS.replace("NAME", name)) for name in ("second", "first")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, homes)))
    assert radmoe("greet").stdout == "first\n"
    assert "every byte as written" in radmoe("verify", shared_pool).stdout
    code = (
        "from radmoe.engines import engine_class; from radmoe.problems import dataset_named; "
        "print(engine_class('transformers').__module__, dataset_named('aime_2024').name)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "radmoe.engines.torch.engine aime_2024\n"


# -- companions that are not installed --------------------------------------------------------------

NO_PLUGINS = "import importlib.metadata; importlib.metadata.entry_points = lambda **filters: ()"


@pytest.mark.parametrize(
    ("words", "companion"),
    [
        ("demo", "radmoe-lab"),
        ("bench pool/ --limit 3", "radmoe-lab"),
        ("lab pools --out pools/", "radmoe-lab"),
        ("lab --help", "radmoe-lab"),
        ("agent run --model m --out runs/", "radmoe-agent"),
        ("agent demo -n 4", "radmoe-agent"),
        ("study all", "radmoe-studies"),
        ("audit", "radmoe-studies"),
    ],
)
def test_a_command_of_a_companion_that_is_not_installed_says_what_to_install(words: str, companion: str) -> None:
    process = start(words.split(), NO_PLUGINS)  # type: ignore[arg-type]
    out, line = process.communicate(timeout=60)
    wanted = f"radmoe {words.split()[0]} is part of {companion}, which is not installed: pip install {companion}"
    assert (process.returncode, out, line) == (2, "", f"radmoe: error: {wanted}\n")


def test_without_companions_help_lists_radmoes_own_and_models_say_where_theirs_are(tmp_path: Path) -> None:
    process = start(["--help"], NO_PLUGINS, COLUMNS="160")
    out, line = process.communicate(timeout=60)
    assert (process.returncode, line) == (0, "")
    assert "evaluate" in out
    assert not [name for name in ("demo", "study", "audit", "bench") if f" {name} " in out]
    (data := tmp_path / "mine.jsonl").write_text('{"id": 1, "prompt": "?", "kind": "math"}\n')
    process = start(["capture", "--model", "lab-qwen", "--data", data, "--out", tmp_path / "p"], NO_PLUGINS)
    _, line = process.communicate(timeout=120)
    assert process.returncode == 2
    assert line.startswith("radmoe: error: no model 'lab-qwen': use a model of radmoe-lab (pip install radmoe-lab)")

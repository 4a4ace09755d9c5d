"""Every command, given what a stranger may have written: nothing but text reaches the terminal."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import radmoe.cli as cli
import tiny_moe
from fake_server import FakeServer
from hostile_text import ATTACKS, ORDINARY, unseen
from planted_pools import write_pool
from pool_attacks import reseal
from pools import labels
from radmoe.grading.labels import write_labels
from radmoe.pool import schema
from radmoe.system.printing import visible
from radmoe_lab import planted
from radmoe_lab.planted import Planted

ATTACK = "".join(ATTACKS.values())
ENCODABLE = st.text(
    st.characters(exclude_categories=("Cs",)) | st.sampled_from("\x1b\x9b\b\r\n\t\u202e[]\\{}|"), max_size=30
)


class Shown(NamedTuple):
    code: int
    out: str
    err: str


def radmoe(*arguments: object) -> Shown:
    """Run a command in this process. Its output must encode, and be text alone, without a traceback; texts of rollouts
    keep their tabs."""
    streams = [io.TextIOWrapper(io.BytesIO(), "utf-8") for _ in range(2)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["radmoe", *map(str, arguments)])
        patch.setenv("COLUMNS", "200")
        with redirect_stdout(streams[0]), redirect_stderr(streams[1]):
            try:
                cli.main()
                code = 0
            except SystemExit as end:
                code = int(end.code or 0)
            for stream in streams:
                stream.flush()
    shown = Shown(code, *(stream.buffer.getvalue().decode() for stream in streams))  # type: ignore[attr-defined]
    assert set(unseen(shown.out + shown.err)) <= {"\t"} & set("\t" * ("--text" in arguments))
    assert "Traceback" not in shown.err
    return shown


def hostile_pool(path: Path, text: str, *, kind: str = "math", name: str | None = None) -> Path:
    """A graded pool in which every text of others is this one."""
    groups = list(planted.groups(Planted(problems=2, rollouts=4, tokens=40, kind=kind)))  # type: ignore[arg-type]
    named = [
        replace(made, group=replace(made.group, problem_id=f"{i}{text}"), texts=[f"{text}{t}" for t in made.texts])
        for i, made in enumerate(groups)
    ]
    write_pool(path, named, model="planted")
    write_labels(path, labels(named))
    run = schema.read_json(path / schema.POOL_JSON)["run"]
    forged = {"model": name or text, "task": name or text, "style": name or text, "sampling": {text: text}}
    reseal(path / schema.POOL_JSON, run=run | forged)
    return path


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return hostile_pool(tmp_path_factory.mktemp("attacked") / "[red]pool[/x]\x1b[2J", ATTACK)


READING: dict[str, Callable[[Path], list[object]]] = {
    "inspect": lambda pool: ["inspect", pool],
    "inspect, JSON": lambda pool: ["inspect", pool, "--json"],
    "verify": lambda pool: ["verify", pool],
    "verify, JSON": lambda pool: ["verify", pool, "--json"],
    "select": lambda pool: ["select", pool],
    "select, texts": lambda pool: ["select", pool, "--text"],
    "select, JSON": lambda pool: ["select", pool, "--json"],
    "no such problem": lambda pool: ["select", pool, "--problem", ATTACK.replace("\0", "")],
    "evaluate": lambda pool: ["evaluate", pool, "--no-cache", "--jobs", 1, "--resamples", 5],
    "evaluate, named": lambda pool: ["evaluate", pool, "--no-cache", "--jobs", 1, "--resamples", 5, "--name", ATTACK],
    "grade": lambda pool: ["grade", pool],
    "merge": lambda pool: ["merge", pool, pool, "--out", pool.parent / f"new{ATTACKS['title']}"],
    "bench": lambda pool: ["bench", pool, "--limit", 1],
}


@pytest.mark.parametrize("command", READING)
def test_a_pool_of_attacks_is_shown_as_text(attacked: Path, command: str) -> None:
    shown = radmoe(*READING[command](attacked))
    if "JSON" in command:
        for line in shown.out.splitlines():
            json.loads(line)
    if shown.code == 2:
        (line,) = shown.err.splitlines()
        assert line.startswith("radmoe: error: ")
    if command != "select, texts":  # a text has as many lines as it has
        assert "\nradmoe: error: your pool" not in shown.out + "\n" + shown.err


@pytest.mark.parametrize("style", ["terminal", "markdown", "csv", "latex", "json"])
def test_a_report_file_is_text_of_its_format(attacked: Path, tmp_path: Path, style: str) -> None:
    out = tmp_path / "report"
    asked = ["evaluate", attacked, "--no-cache", "--jobs", 1, "--resamples", 5, "--format", style]
    assert radmoe(*asked, "--out", out).code == 0
    text = out.read_text(encoding="utf-8")
    assert unseen(text) == []
    if style != "terminal":  # a file has a width of its own
        assert radmoe(*asked).out == text
    if style == "json":
        assert json.loads(text)["pools"][0]["dataset"] == ATTACK


@pytest.mark.slow
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(ENCODABLE)
@example(ATTACK)
@example("".join(ORDINARY))
def test_any_text_of_a_pool_is_shown_as_text(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    pool = hostile_pool(tmp_path_factory.mktemp("any") / "pool", text, name=text or "x")
    for command in ("inspect", "verify", "select", "select, texts", "select, JSON", "evaluate"):
        shown = radmoe(*READING[command](pool))
        assert shown.code == 0, shown.err
        if command == "select, JSON":
            assert [json.loads(line)["problem_id"] for line in shown.out.splitlines()] == [f"0{text}", f"1{text}"]


@pytest.mark.parametrize("text", [t for t in ORDINARY if "|" not in t])
def test_ordinary_names_come_out_unchanged(tmp_path: Path, text: str) -> None:
    pool = hostile_pool(tmp_path / f"pool {text}", text)
    inspected = radmoe("inspect", pool).out
    assert f" {text} " in inspected.replace("\n", " ")
    assert "".join(f"pool {text}".split()) in "".join(inspected.split())  # a long path is folded, in a word if need be
    picked = radmoe("select", pool, "--text").out
    assert f"--- 0{text}, rollout " in picked
    assert f"\n{text}" in picked
    assert text in radmoe("evaluate", pool, "--no-cache", "--jobs", 1, "--resamples", 5).out


WRONG_CALLS: dict[str, Callable[[str], list[object]]] = {
    "a path": lambda text: ["inspect", text],
    "a path of evaluate": lambda text: ["evaluate", text],
    "a task": lambda text: ["capture", "--model", "lab-qwen", "--task", text, "--out", "x"],
    "a model": lambda text: ["capture", "--model", f"./{text}", "--task", "math-1", "--out", "x"],
    "a style": lambda text: ["capture", "--model", "lab-oss", "--style", text, "--task", "math-1", "--out", "x"],
    "a data file": lambda text: ["capture", "--model", "lab-qwen", "--data", f"{text}.jsonl", "--out", "x"],
    "a kind": lambda text: ["capture", "--model", "lab-qwen", "--data", "x", "--kind", text, "--out", "x"],
    "a share": lambda text: ["capture", "--model", "lab-qwen", "--task", "math-1", "--part", text, "--out", "x"],
    "an engine": lambda text: ["doctor", text],
    "a table": lambda text: ["audit", "--table", text],
    "a format": lambda text: ["evaluate", "x", "--format", text],
    "an output file": lambda text: ["evaluate", "x", "--out", f"x.{text}"],
    "an address": lambda text: ["doctor", "vllm-http", "--url", f"http://localhost:1/{text}", "--model", "x"],
    "a number": lambda text: ["select", "x", "--limit", text],
    "an option": lambda text: ["select", f"--{text}"],
    "an option before the command": lambda text: [f"--{text}"],
    "a command": lambda text: [f"x{text}"],
    "one argument too many": lambda text: ["verify", "x", text],
}


@pytest.mark.slow
@pytest.mark.parametrize("text", ATTACKS.values(), ids=ATTACKS)
@pytest.mark.parametrize("call", WRONG_CALLS)
def test_what_was_typed_is_repeated_as_text(
    call: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shown = radmoe(*WRONG_CALLS[call](text))
    assert shown.code in (1, 2)
    if shown.err.startswith("radmoe: error: "):
        assert shown.err.count("\n") == 1


@pytest.mark.slow
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(sorted(WRONG_CALLS)), st.text(st.characters(exclude_characters="\0"), max_size=40))
def test_anything_typed_is_repeated_as_text(tmp_path_factory: pytest.TempPathFactory, call: str, text: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("typed"))
        radmoe(*WRONG_CALLS[call](text))


@pytest.mark.slow
@pytest.mark.parametrize("call", [call for call in WRONG_CALLS if call not in ("an engine", "an address")])
def test_a_very_long_name_is_no_traceback(call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert radmoe(*WRONG_CALLS[call]("x" * 5000)).code == 2


@pytest.mark.slow
def test_very_long_names_in_a_pool_are_shortened_in_tables(tmp_path: Path) -> None:
    pool = hostile_pool(tmp_path / "pool", "x" * 20_000)
    for command in ("inspect", "select", "evaluate"):
        shown = radmoe(*READING[command](pool))
        assert shown.code == 0
        assert len(shown.out) < 20_000
        assert "…" in shown.out


def test_bytes_of_a_path_that_are_no_text_are_escaped(tmp_path: Path) -> None:
    shown = radmoe("inspect", os.fsdecode(b"there\xff\x9b"))
    assert shown == (
        2,
        "",
        "radmoe: error: there is no pool at there\\udcff\\udc9b: give the directory that holds pool.json\n",
    )


@pytest.mark.slow
def test_a_terminal_without_accents_gets_escapes(tmp_path: Path) -> None:
    pool = hostile_pool(tmp_path / "pool", "naïve 模型")
    for command in ("inspect", "select, texts", "evaluate"):
        done = subprocess.run(
            [sys.executable, "-m", "radmoe", *map(str, READING[command](pool))],
            capture_output=True,
            check=True,
            env=os.environ | {"PYTHONIOENCODING": "ascii", "COLUMNS": "200"},
        )
        assert rb"na\xefve \u6a21\u578b" in done.stdout


def test_a_path_with_a_closing_tag_is_named_as_typed() -> None:
    assert "there/[/x]" in radmoe("inspect", "there/[/x]").err


def test_a_wrong_call_shows_what_was_typed() -> None:
    err = radmoe("select", "x", "--\x1b]0;owned\x07[red]").err
    assert r"\x1b]0;owned\x07[red]" in err
    assert "Usage: radmoe select [OPTIONS]" in err


def test_ids_of_a_data_file_are_shown_as_text(tmp_path: Path) -> None:
    rows = [{"id": ATTACK, "prompt": "x", "answer": "1"}] * 2
    data = tmp_path / "rows.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    shown = radmoe("capture", "--model", "lab-qwen", "--data", data, "--kind", "math", "--out", tmp_path / "pool")
    assert shown.code == 2
    assert shown.err.count("\n") == 1


def test_what_a_data_file_asks_is_captured_and_shown_as_text(tmp_path: Path) -> None:
    data = tmp_path / "[rows]\x1b[2J.jsonl"
    data.write_text(json.dumps({"id": ATTACK, "prompt": ATTACK[:50], "answer": ATTACK}) + "\n")
    out = tmp_path / f"pool{ATTACKS['title']}"
    asked = ["capture", "--model", tiny_moe.save(tmp_path / "model"), "--data", data, "--kind", "math", "--raw"]
    shown = radmoe(*asked, "-n", 2, "--max-tokens", 4, "--out", out)
    assert shown.code == 0, shown.err
    assert r"pool\x1b]0;owned\x07" in shown.out


class Spiteful(FakeServer):
    """Answers everything with an error of its own words."""

    def answer(self, path: str, body: dict[str, Any] | None) -> tuple[int, Any]:
        return 400, {"error": {"message": ATTACK}, "detail": ATTACK}


class Misnamed(FakeServer):
    """Serves a model of this name."""

    def answer(self, path: str, body: dict[str, Any] | None) -> tuple[int, Any]:
        if path.endswith("models"):
            return 200, {"data": [{"id": ATTACK, "root": ATTACK, "max_model_len": 64}]}
        return super().answer(path, body)


@pytest.mark.parametrize("kind", [Spiteful, Misnamed])
def test_what_a_server_says_is_shown_as_text(kind: type[FakeServer], tmp_path: Path) -> None:
    checkpoint = tiny_moe.save(tmp_path / "tiny")
    with kind(tiny_moe.engine("qwen3-moe"), "vllm").running() as server:
        asked = ["--url", server.url, "--model", checkpoint]
        shown = radmoe("doctor", "vllm-http", *asked, "--reference", "none")
        assert shown.code in (1, 2)
        assert r"\x1b]0;owned\x07" in shown.out + shown.err
        shown = radmoe("capture", "--engine", "vllm-http", *asked, "--task", "math-1", "--out", tmp_path / "pool")
        assert shown.code == 2
        assert shown.err.count("\n") == 1


def test_a_fault_of_ours_shows_a_traceback_as_text(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError(ATTACK)

    monkeypatch.setattr(cli, "app", broken)
    with pytest.raises(SystemExit, match="1"):
        cli.main()
    err = capsys.readouterr().err
    assert f"RuntimeError: {visible(ATTACK, block=True)}" in err
    assert set(unseen(err)) <= {"\t"}


def on_a_terminal(*arguments: object) -> bytes:
    """What a command writes to a terminal, stdout and stderr together."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ.update(TERM="xterm-256color", COLUMNS="100", LINES="40")
        os.execv(sys.executable, [sys.executable, "-m", "radmoe", *map(str, arguments)])
    written = b""
    while True:
        try:
            piece = os.read(terminal, 1 << 16)
        except OSError:  # Linux says that the other side has gone
            break
        if not piece:
            break
        written += piece
    os.close(terminal)
    os.waitpid(pid, 0)
    return written


OURS = rb"\x1b\[[0-9;]*m|\x1b\[\?25[lh]|\x1b\[\d*[AK]"  # colours, the cursor shown or not, a line up, a line erased


@pytest.mark.slow
@pytest.mark.parametrize("command", ["inspect", "select, texts", "evaluate", "verify"])
def test_a_terminal_gets_our_own_sequences_alone(attacked: Path, command: str) -> None:
    written = on_a_terminal(*READING[command](attacked))
    assert b"Traceback" not in written
    text = re.sub(OURS, b"", written).decode()
    assert set(unseen(text)) <= {"\r", "\t"}  # a terminal ends lines in \r\n, and a bar goes back to the line's start
    assert re.search(OURS, written)
    assert b"\x1b[8m" not in written

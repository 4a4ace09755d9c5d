"""Every command and snippet that a reader meets: in README.md, in docs/, in `--help`, and in our own messages.

A fence of commands is expanded by bash itself, so that loops, globs and substitutions become what would be run.
"""

from __future__ import annotations

import importlib
import json
import os
import pkgutil
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import typer

import radmoe
import radmoe_agent.commands
import radmoe_integrations.commands
import radmoe_lab.commands
import radmoe_studies.commands
from printed_driver import hints
from radmoe import cli
from radmoe.cli import app

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", *sorted(ROOT.glob("docs/*.md")), *sorted(ROOT.glob("packages/*/docs/*.md")))
SOURCES = sorted(
    path
    for package in (radmoe, radmoe_agent, radmoe_integrations, radmoe_lab, radmoe_studies)
    for path in Path(str(package.__file__)).parent.rglob("*")
    if path.suffix in (".py", ".js", ".html")
)
_COMMANDS = (cli, radmoe_agent.commands, radmoe_integrations.commands, radmoe_lab.commands, radmoe_studies.commands)
PROGRAMS = ("radmoe", "python", "make", "pip", "curl", "podman", "vllm")
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FIRST_WORD = re.compile(r"(?:[A-Z_]+=\S+ )?([\w.-]+)")
_INLINE = re.compile(r"`((?:\S*/)?(?:radmoe|python|make)\s[^`]+)`")
_MENTIONED = re.compile(r"\bradmoe ([a-z]+)((?: [\w./{}(*=@-]+)*)")

GPU = "needs a GPU"
HUB = "needs the hub"
LONG = "takes over two minutes"
SERVER = "needs vLLM, SGLang or a container"
CLUSTER = "needs a Ray cluster"
READERS = "names a file of the reader's"
HARNESS = "runs in packages/radmoe-integrations/tests"
UNRUN = {  # why a printed command or snippet is parsed and not run, by where it stands and what it is; the first counts
    r"--device cuda|DEVICE=cuda|radmoe_lab\.train .*--seconds": GPU,
    r": (vllm|podman)|sglang|--engine vllm|doctor vllm|--upstream|LLM\(|VllmEngine|VllmHttpEngine|vllm-http|verified/|run_evaluation|httpx\.post": SERVER,
    r"--on ray|benchmarks\.scale --": CLUSTER,
    r"inspect_ai": HARNESS,
    r"MODEL|FILE|my_package|theirs/|my\.patch|(hmmt|gpqa)\.jsonl": READERS,
    r"--task (hmmt|gpqa|aime)\w*(?!.*--(data|answers))": HUB,
    r": (make|pip)|build/|^docs/confirmation|docs/regimes|lab pools (?!.*--limit)|lab agent|radmoe (agent )?demo|study all": LONG,
    r"radmoe_lab\.((agent\.)?sample|archive\.pack)|--adopt|sampled/": LONG,
}
EXTRAS = {
    r"radmoe (lab )?agent": "demo,agent",
    r"--engine llamacpp|LlamaCppEngine": "llamacpp",
    r"load_dataset": "dev",  # which the reader brings
    r"radmoe (import|export)|radmoe_integrations": "demo,integrations",
}  # else what make demo installs


@dataclass(frozen=True)
class Snippet:
    """A fence of a page: `language` is "python", "commands" or "listing"."""

    where: str
    language: str
    text: str


@cache
def snippets() -> tuple[Snippet, ...]:
    """All fences of all pages."""
    found = []
    for page in PAGES:
        text = page.read_text()
        for fence in _FENCE.finditer(text):
            line = text.count("\n", 0, fence.start()) + 1
            first = _FIRST_WORD.match(fence[2])
            commands = first is not None and first[1] in (*PROGRAMS, "for")
            language = fence[1] or ("commands" if commands else "listing")
            found.append(Snippet(f"{page.relative_to(ROOT)}:{line}", language, fence[2]))
    return tuple(found)


def expanded(text: str, directory: Path) -> list[list[str]]:
    """The calls of `PROGRAMS` that bash makes of a text, in a directory."""
    functions = "".join(f'{name}() {{ printf "%s\\0" {name} "$@"; printf "\\036"; }}\n' for name in PROGRAMS)
    done = subprocess.run(["bash", "-c", functions + text], capture_output=True, text=True, cwd=directory, check=False)
    assert done.returncode == 0, f"bash does not read {text!r}: {done.stderr}"
    assert not done.stderr, f"bash says {done.stderr!r} of {text!r}"
    return [_spelled_out(call.split("\0")[:-1]) for call in done.stdout.split("\036")[:-1]]


def _spelled_out(call: list[str]) -> list[str]:
    """A call with the words that `...` stands for in pages on capture."""
    if "..." not in call:
        return call
    at = call.index("...")
    out = [] if "--out" in call else ["--out", "pool/"]
    return [*call[:at], "--model", "./checkpoint", "--data", "mine.jsonl", "--kind", "code", *call[at + 1 :], *out]


def printed_commands(directory: Path) -> dict[tuple[str, ...], str]:
    """Every command of a fence or of an epilog, once, with the place where it stands; globs are of the directory."""
    found: dict[tuple[str, ...], str] = {}
    for snippet in snippets():
        if snippet.language == "commands":
            for call in expanded(snippet.text, directory):
                found.setdefault(tuple(call), snippet.where)
    for package in _COMMANDS:
        for module in pkgutil.iter_modules(package.__path__):
            examples = getattr(importlib.import_module(f"{package.__name__}.{module.name}"), "EXAMPLES", ())
            calls = "\n".join(examples).replace("\\\n", " ").splitlines()
            for call in expanded("\n".join(line for line in calls if line.startswith("radmoe ")), directory):
                found.setdefault(tuple(call), f"radmoe {module.name} --help")
    return found


def inline_commands(directory: Path) -> Iterator[tuple[str, list[str]]]:
    """Commands within the text of pages: where, and the words."""
    for page in PAGES:
        prose = _FENCE.sub("", page.read_text())
        for match in _INLINE.finditer(prose):
            text = re.sub(r"\S*/(radmoe|python)\b", r"\1", " ".join(match[1].split()).partition(" | ")[0])
            for call in expanded(text, directory):
                yield f"{page.relative_to(ROOT)}: `{text}`", call


def mentioned_commands() -> Iterator[tuple[str, str, list[str]]]:
    """What our own messages, docstrings and pages name: where, the command, and its options."""
    for source in SOURCES:
        for match in _MENTIONED.finditer(source.read_text()):
            if match[1] in commands():
                words = match[2].split()
                name = f"{match[1]} {words[0]}" if words and f"{match[1]} {words[0]}" in commands() else match[1]
                yield f"{source.name}: {match[0]}", name, [word.partition("=")[0] for word in words if word[:2] == "--"]


@cache
def commands() -> dict[str, Any]:
    """Every command of the real command line, by its words."""
    found = {}
    for name, command in typer.main.get_command(app).commands.items():  # type: ignore[attr-defined]
        found[name] = command
        found |= {f"{name} {inner}": one for inner, one in getattr(command, "commands", {}).items()}
    return found


def parse(words: list[str], *, whole: bool = True) -> str:
    """What the real command line has against a call of radmoe; empty where it would run. Nothing is run.

    Without `whole`, what is missing is no fault: prose says `radmoe select --preset best`.
    """
    name = " ".join(words[:2]) if " ".join(words[:2]) in commands() else " ".join(words[:1])
    if name not in commands():
        return f"there is no command {name!r}"
    if hasattr(commands()[name], "commands"):
        return "" if len(words) == 1 and not whole else f"{name} has no command {words[1:2]}"
    try:
        commands()[name].make_context(name, words[len(name.split()) :])
    except Exception as error:
        if not hasattr(error, "format_message"):
            raise
        message: str = error.format_message()
        missing = type(error).__name__ == "MissingParameter" or message.endswith("requires an argument.")
        return "" if missing and not whole else message
    return ""


def reason(where: str, text: str) -> str | None:
    """Why a command or snippet is not run; None where it is."""
    return next((why for pattern, why in UNRUN.items() if re.search(pattern, f"{where}: {text}")), None)


def extras_for(text: str) -> str:
    """The extras of the environment that a command or snippet is printed for."""
    return next((extras for pattern, extras in EXTRAS.items() if re.search(pattern, text)), "demo")


def driven(
    steps: list[dict[str, Any]], workspace: Path, extras: str = "demo", *, keep: bool = False
) -> list[dict[str, Any]]:
    """The results of steps that run in one process with what these extras install: each in a copy, or in the workspace."""
    scratch = str(workspace) if keep else f"{workspace}-scratch"
    driver = [sys.executable, str(ROOT / "tests/support/printed_driver.py"), extras, str(workspace), scratch]
    own = os.environ | {"HF_HOME": f"{workspace}-hub"}  # what datasets keeps of the files that it has read
    done = subprocess.run(driver, input=json.dumps(steps), capture_output=True, text=True, check=False, env=own)
    results = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(results) == len(steps), done.stderr
    return results


def follow(said: str, place: Path, extras: str) -> list[list[str]]:
    """Run what a command ended with ("Now try:") in the environment that printed it; what would take long is parsed."""
    calls = hints(said)
    slow = [call for call in calls if reason("", " ".join(call))]
    assert not [fault for call in slow if (fault := parse(call[1:]))]
    quick = [call for call in calls if call not in slow]
    for call, result in zip(quick, driven([{"argv": call} for call in quick], place, extras, keep=True), strict=True):
        assert result["code"] == 0, f"{' '.join(call)}\n{result['said'][-600:]}"
    return calls

"""The tools of the Harmony harness: how they are described to a model, and what they answer.

The names and the arguments are those that gpt-oss was trained with; what a tool does is ours.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from shlex import join, quote
from typing import Any, NamedTuple

from radmoe.errors import InputError
from radmoe_agent.harmony.messages import Malformed
from radmoe_agent.harmony.repository import Repository

LONGEST = 10_000  # characters of an answer, of which the middle is left out
MOST_LINES = 500  # of a file that is opened without an end
MOST_MATCHES = 50
_ALIASES = {"path": ("file_path",), "line_start": ("start_line",), "line_end": ("end_line",), "command": ("cmd",), "query": ("pattern",)}  # fmt: skip
_HERE_DOCUMENT = re.compile(r"\s*apply_patch\s*<<\s*(['\"]?)(\w+)\1\n(.*\n)\2\s*", re.DOTALL)


class ToolResult(NamedTuple):
    """What a tool answers: a text, and an exit code, which is 0 where it did what it was asked."""

    code: int
    text: str
    stopped: bool = False

    @property
    def content(self) -> str:
        """The content of the tool's message."""
        return f"<returncode>{self.code}</returncode>\n<output>\n{shortened(self.text)}\n</output>"


class Parameter(NamedTuple):
    """An argument of a tool. `kind` is string, string[], number or boolean, as TypeScript calls it."""

    name: str
    kind: str
    description: str
    optional: bool = False
    otherwise: object = None  # what stands for it where it is missing; `...`: it must be there


@dataclass(frozen=True)
class Tool:
    """A tool: its name in its namespace, what it is for, its arguments, and what it does with them."""

    name: str
    description: str
    parameters: tuple[Parameter, ...]
    use: Callable[..., ToolResult]


class Call(NamedTuple):
    """A tool with the arguments of one call, read and checked."""

    tool: str
    arguments: Mapping[str, Any]


def _exec(repository: Repository, *, command: list[str], workdir: str | None) -> ToolResult:
    if (patch := _patch_in(command)) is not None:
        return _apply_patch(repository, patch=patch)
    words = join(command)
    done = repository.shell(words if workdir is None else f"cd -- {quote(workdir)} && {words}")
    text = done.output.decode(errors="replace")
    if done.left_out:
        text += f"\n[{done.left_out:,} more bytes were left out]"
    if done.stopped:
        text += f"\n[the command was stopped: {done.stopped}]"
    return ToolResult(-1 if done.stopped else done.code, text, bool(done.stopped))


def _patch_in(command: list[str]) -> str | None:
    """The patch of a command that calls apply_patch as a program, which models do, though there is no such program."""
    match command:
        case ["apply_patch", patch]:
            return patch
        case ["bash" | "sh", "-c" | "-lc", line] if found := _HERE_DOCUMENT.fullmatch(line):
            return found[3]
    return None


def _print_tree(repository: Repository, *, path: str, depth: int) -> ToolResult:
    return ToolResult(
        0,
        "\n".join(
            f"{'  ' * one.path.count('/')}{one.path.rpartition('/')[2]}{'/' * one.directory}"
            for one in repository.entries(path, depth)
        ),
    )


def _list_dir(repository: Repository, *, path: str, depth: int) -> ToolResult:
    return ToolResult(0, "\n".join(f"{one.path}{'/' * one.directory}" for one in repository.entries(path, depth)))


def _search(repository: Repository, *, path: str, query: str, max_results: int) -> ToolResult:
    if not query:
        raise InputError("query is empty: give a text or a pattern to look for")
    found = repository.search(path, query, max_results + 1)
    more = [f"[there are more: only {max_results} are shown]"] if len(found) > max_results else []
    return ToolResult(0, "\n".join([*found[:max_results], *more])) if found else ToolResult(1, "no line matches")


def _open_file(
    repository: Repository, *, path: str, line_start: int, line_end: int | None, line_numbers: bool
) -> ToolResult:
    last = line_start + MOST_LINES - 1 if line_end is None else line_end
    if line_start < 1 or last < line_start:
        raise InputError(f"lines {line_start} to {last} are none: the first line is 1, and line_end follows line_start")
    lines, count = repository.lines(path, line_start, last)
    if not lines:
        return ToolResult(0, f"[line {line_start} is not there: the file has {count:,} lines]")
    shown = [f"{at:6}\t{line}" for at, line in enumerate(lines, line_start)] if line_numbers else lines
    more = [f"[the file has {count:,} lines]"] if line_end is None and line_start + len(lines) <= count else []
    return ToolResult(0, "\n".join([*shown, *more]))


def _apply_patch(repository: Repository, *, patch: str) -> ToolResult:
    done = repository.patch(patch)
    return ToolResult(0, "\n".join(["The patch was applied:", *done]) if done else "The patch changes nothing.")


_PLACE = Parameter("path", "string", "A directory or file; the empty string is the repository.", otherwise="")
NAMESPACES: dict[str, tuple[str, tuple[Tool, ...]]] = {
    "container": (
        "Runs commands.",
        (
            Tool(
                "exec",
                "Runs a command in the repository and returns its output. Most commands should begin with\n"
                '["bash", "-lc"]. Nothing but files stays from one command to the next.',
                (
                    Parameter("command", "string[]", "The program and its arguments.", otherwise=...),
                    Parameter("workdir", "string", "Where it runs; by default in the repository.", True),
                ),
                _exec,
            ),
        ),
    ),
    "repo_browser": (
        "Reads and changes the files of the repository.",
        (
            Tool(
                "print_tree",
                "Prints the tree of files below a directory.",
                (_PLACE, Parameter("depth", "number", "How many levels are printed.", otherwise=2)),
                _print_tree,
            ),
            Tool(
                "search",
                "Prints the lines that match a pattern, with their files and numbers.",
                (
                    _PLACE,
                    Parameter("query", "string", "A regular expression, or a plain text.", otherwise=...),
                    Parameter("max_results", "number", "Lines printed at most.", True, MOST_MATCHES),
                ),
                _search,
            ),
            Tool(
                "open_file",
                "Prints lines of a file.",
                (
                    Parameter("path", "string", "The file.", otherwise=...),
                    Parameter("line_start", "number", "The first line, counted from 1.", True, 1),
                    Parameter("line_end", "number", "The last line.", True),
                    Parameter("line_numbers", "boolean", "Whether each line begins with its number.", True, False),
                ),
                _open_file,
            ),
            Tool(
                "list_dir",
                "Lists the entries of a directory.",
                (_PLACE, Parameter("depth", "number", "How many levels are listed.", True, 1)),
                _list_dir,
            ),
            Tool(
                "apply_patch",
                "Changes files by a patch from *** Begin Patch to *** End Patch, with sections *** Update File: PATH,\n"
                "*** Add File: PATH and *** Delete File: PATH. All of it is applied, or nothing.",
                (Parameter("patch", "string", "The patch.", otherwise=...),),
                _apply_patch,
            ),
        ),
    ),
}
TOOLS = {f"{space}.{tool.name}": tool for space, (_, tools) in NAMESPACES.items() for tool in tools}
_SHORT = {tool.name: full for full, tool in TOOLS.items()}


def tools_text() -> str:
    """The section of a system message that describes the tools, in the form that gpt-oss was trained with."""
    sections = ["# Tools"]
    for space, (description, tools) in NAMESPACES.items():
        lines = [f"## {space}\n", *_comment(description), f"namespace {space} {{\n"]
        for tool in tools:
            lines += [*_comment(tool.description), f"type {tool.name} = (_: {{"]
            for one in tool.parameters:
                lines += [*_comment(one.description), f"{one.name}{'?' * one.optional}: {one.kind},"]
            lines.append("}) => any;\n")
        sections.append("\n".join([*lines, f"}} // namespace {space}"]))
    return "\n\n".join(sections)


def tool_name(text: str | None) -> str | None:
    """The tool that a recipient or a channel names, in its namespace or any other; None where it names none.

    Models write markers into the name at times (`repo_browser.search<|channel|>analysis`): what follows `<|` is not read.
    """
    name = (text or "").partition("<|")[0].strip()
    return name if name in TOOLS else _SHORT.get(name.rpartition(".")[2])


def read_call(tool: str, content: str) -> Call:
    """The arguments of a call. Raises Malformed for what is no JSON object, or lacks an argument that the tool needs."""
    try:
        given = json.loads(content)
        json.dumps(given, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise Malformed(f"the arguments of {tool} have half a character") from None
    except (ValueError, RecursionError):
        raise Malformed(f"the arguments of {tool} are not JSON") from None
    if not isinstance(given, dict):
        raise Malformed(f"the arguments of {tool} are no JSON object")
    arguments = {one.name: _argument(tool, one, given) for one in TOOLS[tool].parameters}
    return Call(tool, arguments)


def use(call: Call, repository: Repository) -> ToolResult:
    """What a tool answers. What it cannot do is said in its answer, so that the model may try something else."""
    try:
        return TOOLS[call.tool].use(repository, **call.arguments)
    except InputError as error:
        return ToolResult(1, str(error))


def shortened(text: str) -> str:
    """A text of which the middle is left out if it is too long for a message."""
    if len(text) <= LONGEST:
        return text
    half = LONGEST // 2
    return f"{text[:half]}\n[{len(text) - 2 * half:,} characters were left out]\n{text[-half:]}"


def _comment(text: str) -> list[str]:
    return [f"// {line}" for line in text.splitlines()]


def _argument(tool: str, one: Parameter, given: Mapping[str, Any]) -> Any:
    value = next((given[name] for name in (one.name, *_ALIASES.get(one.name, ())) if given.get(name) is not None), None)
    if value is None:
        if one.otherwise is ...:
            raise Malformed(f"{tool} was called without {one.name}")
        return one.otherwise
    match one.kind, value:
        case "string", str():
            return value
        case "string[]", str():
            return ["bash", "-lc", value]
        case "string[]", [str(), *_] if all(isinstance(word, str) for word in value):
            return value
        case "number", int() | float() | str() if not isinstance(value, bool):
            try:
                return max(-(10**6), min(int(value), 10**6))
            except (ValueError, OverflowError):
                pass
        case "boolean", bool():
            return value
        case "boolean", "true" | "false":
            return value == "true"
    raise Malformed(f"{tool} needs {one.name} to be {one.kind}, got {str(value)[:60]!r}")

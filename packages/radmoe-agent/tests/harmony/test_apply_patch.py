"""The format of apply_patch: cases against its grammar, and fuzzed patches that change all they say or nothing."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from patch_fuzz import Place, check, fuzzed
from radmoe_agent.harmony.apply_patch import PatchError, changes, read_patch, repository_path

FILES = {
    "sums.py": "def total(xs):\n    return sum(xs) + 1\n\n\ndef mean(xs):\n    return total(xs) / len(xs)\n",
    "twice.py": "class A:\n    def f(self):\n        return 1\n\nclass B:\n    def f(self):\n        return 1\n",
    "open.txt": "one\ntwo",
    "empty.txt": "",
    "quotes.txt": "say “hello” \u2013 it\u2019s fine…\nnext\n",
    "odd.txt": "a \t\n  b\n\tc\n",
}


def applied(body: str, files: dict[str, str] = FILES) -> dict[str, str | None]:
    return changes(read_patch(f"*** Begin Patch\n{body}\n*** End Patch\n"), files.get)


SUM = {"sums.py": FILES["sums.py"].replace(" + 1", "")}
A1 = {"twice.py": FILES["twice.py"].replace("return 1", "return 2", 1)}
B1 = {"twice.py": FILES["twice.py"][::-1].replace("1 nruter", "2 nruter", 1)[::-1]}
GOOD: list[tuple[str, dict[str, str | None]]] = [
    ("*** Update File: sums.py\n-    return sum(xs) + 1\n+    return sum(xs)", SUM),
    ("*** Update File: sums.py\n@@\n-    return sum(xs) + 1\n+    return sum(xs)", SUM),
    ("*** Update File: sums.py\n@@ def total(xs):\n-    return sum(xs) + 1\n+    return sum(xs)", SUM),
    ("*** Update File:   sums.py  \n def total(xs):\n-    return sum(xs) + 1\n+    return sum(xs)", SUM),
    ("*** Update File: sums.py\n@@ -1,2 +1,2 @@\n def total(xs):\n-    return sum(xs) + 1\n+    return sum(xs)", SUM),
    ("*** Update File: sums.py\n@@ -1 +1 @@ def total(xs):\n-    return sum(xs) + 1\n+    return sum(xs)", SUM),
    ("*** Update File: sums.py\n def total(xs):\n-    return sum(xs) + 1\n+    return sum(xs)\n\n\n def mean(xs):", SUM),
    ("*** Update File: sums.py\n-return sum(xs) + 1\n+    return sum(xs)", SUM),
    ("*** Update File: sums.py\n-    return sum(xs) + 1  \n+    return sum(xs)", SUM),
    ("*** Update File: sums.py\n-    return sum(xs) + 1\n+    return sum(xs)\n\n", SUM),
    ("\n\n*** Update File: sums.py\n-    return sum(xs) + 1\n+    return sum(xs)", SUM),
    ("*** Update File: sums.py\r\n-    return sum(xs) + 1\r\n+    return sum(xs)\r", SUM),
    ("*** Update File: twice.py\n-        return 1\n+        return 2", A1),
    ("*** Update File: twice.py\n@@ class B:\n-        return 1\n+        return 2", B1),
    ("*** Update File: twice.py\n@@ class B:\n@@     def f(self):\n-        return 1\n+        return 2", B1),
    ("*** Update File: twice.py\n@@ class B:\n@@ def f(self):\n-        return 1\n+        return 2", B1),
    ("*** Update File: twice.py\n-        return 1\n+        return 2\n*** End of File", B1),
    ("*** Update File: twice.py\n@@ class B:\n+    x = 0", {"twice.py": FILES["twice.py"].replace("B:\n", "B:\n    x = 0\n")}),
    ("*** Update File: twice.py\n+# end", {"twice.py": FILES["twice.py"] + "# end\n"}),
    ("*** Update File: twice.py\n@@ class B:\n+# end\n*** End of File", {"twice.py": FILES["twice.py"] + "# end\n"}),
    ("*** Update File: twice.py\n class A:\n+    y = 0\n@@\n class B:\n+    z = 0", {"twice.py": FILES["twice.py"].replace("A:\n", "A:\n    y = 0\n").replace("B:\n", "B:\n    z = 0\n")}),
    ("*** Update File: open.txt\n-two\n+three", {"open.txt": "one\nthree\n"}),
    ("*** Update File: open.txt\n-one\n+uno", {"open.txt": "uno\ntwo"}),
    ("*** Update File: open.txt\n+three", {"open.txt": "one\ntwo\nthree\n"}),
    ("*** Update File: open.txt\n one\n-two", {"open.txt": "one"}),
    ("*** Update File: empty.txt\n+first", {"empty.txt": "first\n"}),
    ("*** Update File: quotes.txt\n say \"hello\" - it's fine...\n-next\n+last", {"quotes.txt": FILES["quotes.txt"].replace("next", "last")}),
    ("*** Update File: quotes.txt\n-say \"hello\" - it's fine...\n+said", {"quotes.txt": "said\nnext\n"}),
    ("*** Update File: odd.txt\n a\n-b\n+B", {"odd.txt": "a \t\nB\n\tc\n"}),
    ("*** Update File: odd.txt\n   b\n-\tc\n+C", {"odd.txt": "a \t\n  b\nC\n"}),
    ("*** Update File: odd.txt\n a \t\n-  b\n \tc", {"odd.txt": "a \t\n\tc\n"}),
    ("*** Update File: odd.txt\n   b", {}),
    ("*** Add File: new/deep.txt\n+a\n+b", {"new/deep.txt": "a\nb\n"}),
    ("*** Add File: new.txt\n+a\n\n", {"new.txt": "a\n"}),
    ("*** Add File: new.txt\n++plus\n+", {"new.txt": "+plus\n\n"}),
    ("*** Add File: new.txt", {"new.txt": ""}),
    ("*** Add File: new.txt\n+*** End Patch\n+*** Add File: x", {"new.txt": "*** End Patch\n*** Add File: x\n"}),
    ("*** Delete File: sums.py", {"sums.py": None}),
    ("*** Delete File: sums.py\n\n*** Add File: sums.py\n+x", {"sums.py": "x\n"}),
    ("*** Update File: open.txt\n*** Move to: shut.txt", {"open.txt": None, "shut.txt": "one\ntwo"}),
    ("*** Update File: open.txt\n*** Move to: shut.txt\n-one\n+uno", {"open.txt": None, "shut.txt": "uno\ntwo"}),
    ("*** Update File: open.txt\n*** Move to: open.txt\n-one\n+uno", {"open.txt": "uno\ntwo"}),
    ("*** Update File: open.txt\n-one\n+uno\n*** Update File: open.txt\n-uno\n+eins", {"open.txt": "eins\ntwo"}),
    ("*** Update File: open.txt\n-one\n+uno\n*** Delete File: sums.py\n*** Add File: z\n+z", {"open.txt": "uno\ntwo", "sums.py": None, "z": "z\n"}),
    ("*** Add File: q\n+1\n*** Update File: q\n-1\n+2", {"q": "2\n"}),
    ("*** Add File: q\n+1\n*** Delete File: q", {}),
    ("*** Update File: sums.py\n-def mean(xs):\n-    return total(xs) / len(xs)", {"sums.py": FILES["sums.py"].partition("def mean")[0]}),
]  # fmt: skip
BAD: list[tuple[str, str]] = [
    ("", "the patch names no file"),
    ("x", "line 2 of the patch belongs to no file: 'x'"),
    ("--- a/sums.py\n+++ b/sums.py", "line 2 of the patch belongs to no file"),
    ("*** Rename File: a", "line 2 of the patch belongs to no file"),
    ("*** Update File: \n-a", "line 2 of the patch names no file"),
    ("*** Add File:\n+a", "line 2 of the patch names no file"),
    ("*** Delete File:", "line 2 of the patch names no file"),
    ("*** Update File: sums.py", "has no lines"),
    ("*** Update File: sums.py\n@@ def total(xs):", "the hunk before line 4 of the patch has no lines"),
    ("*** Update File: sums.py\n@@ def total(xs):\n*** End of File", "the hunk before line 4 of the patch has no lines"),
    ("*** Update File: sums.py\nreturn", "line 3 of the patch must begin with a blank, -, \\+ or @@: 'return'"),
    ("*** Update File: sums.py\n*** Move to:", "line 3 of the patch names no file to move to"),
    ("*** Update File: sums.py\n-a\n+b\n*** Move to: x", "line 5 of the patch must begin with"),
    ("*** Update File: none.py\n-a\n+b", "there is no file none.py"),
    ("*** Delete File: none.py", "there is no file none.py"),
    ("*** Delete File: sums.py\n*** Delete File: sums.py", "there is no file sums.py"),
    ("*** Delete File: sums.py\n*** Update File: sums.py\n-a\n+b", "there is no file sums.py"),
    ("*** Delete File: sums.py\nx", "line 3 of the patch follows \\*\\*\\* Delete File"),
    ("*** Add File: sums.py\n+x", "sums.py exists already"),
    ("*** Add File: x\nx", "line 3 of the patch must begin with \\+"),
    ("*** Add File: x\n+x\n-y", "line 4 of the patch must begin with \\+"),
    ("*** Add File: x\n+x\n\n+y", "line 4 of the patch must begin with \\+"),
    ("*** Add File: x\n+x\n*** Add File: x\n+y", "x exists already"),
    ("*** Add File: x\n+x\n*** Add File: x/y\n+y", "x/y lies below x"),
    ("*** Delete File: sums.py\n*** Add File: sums.py/y\n+y", "sums.py/y lies below sums.py"),
    ("*** Update File: open.txt\n*** Move to: sums.py", "open.txt cannot be moved to sums.py, which exists already"),
    ("*** Update File: sums.py\n-    return sum(xs) + 2\n+x", "sums.py: hunk 1 was not found"),
    ("*** Update File: sums.py\n def total(xs):\n def mean(xs):\n+x", "hunk 1 was not found"),
    ("*** Update File: sums.py\n def mean(xs):\n+a\n@@\n def total(xs):\n+b", "sums.py: hunk 2 was not found"),
    ("*** Update File: sums.py\n@@ def none():\n-a\n+b", "no line is 'def none\\(\\):', which stands after @@"),
    ("*** Update File: sums.py\n@@ def mean(xs):\n-    return sum(xs) + 1\n+b", "hunk 1 was not found"),
    ("*** Update File: sums.py\n def total(xs):\n+b\n*** End of File", "no lines at the end of the file"),
    ("*** Update File: empty.txt\n-a\n+b", "hunk 1 was not found"),
    ("*** Update File: sums.py\n-DEF TOTAL(XS):\n+b", "hunk 1 was not found"),
    ("*** Update File: open.txt\n-one\n+uno\n*** Update File: sums.py\n-none\n+x", "sums.py: hunk 1 was not found"),
]  # fmt: skip


@pytest.mark.parametrize(("body", "becomes"), GOOD)
def test_a_patch_changes_what_it_says(body: str, becomes: dict[str, str | None]) -> None:
    assert applied(body) == becomes


@pytest.mark.parametrize(("body", "reason"), BAD)
def test_a_patch_that_cannot_be_applied_is_refused_with_its_reason(body: str, reason: str) -> None:
    with pytest.raises(PatchError, match=reason):
        applied(body)


@pytest.mark.parametrize("text", ["", "x", "*** Begin Patch", "*** End Patch", "*** Add File: x\n+x", "*** Begin Patch\n*** Add File: x\n+x", "a\n*** Begin Patch\n*** Add File: x\n*** End Patch", "*** Begin Patch *** End Patch"])  # fmt: skip
def test_a_text_that_is_no_patch_is_refused(text: str) -> None:
    with pytest.raises(PatchError, match="a patch must begin with the line"):
        read_patch(text)


LINES = [f"row {n}" for n in range(6)]
SPELLED = {  # how the file spells a line, and how the patch does, for each of the four passes
    "exact": (lambda line: f"  {line}", lambda line: f"  {line}"),
    "blanks behind": (lambda line: f"  {line} \t", lambda line: f"  {line}"),
    "blanks around": (lambda line: f"\t{line} ", lambda line: f"  {line}"),
    "punctuation": (lambda line: f"  “{line}” \u2013 it\u2019s", lambda line: f'  "{line}" - it\'s'),
}
EDITS = {  # the lines of a hunk over rows 0 to 5 as (sign, row or new text)
    "replace": [(" ", 1), ("-", 2), ("+", "new"), (" ", 3)],
    "remove": [(" ", 1), ("-", 2), (" ", 3)],
    "insert": [(" ", 2), ("+", "new"), (" ", 3)],
    "at the start": [("+", "new"), (" ", 0)],
    "first line": [("-", 0), ("+", "new")],
    "at the end": [(" ", 5), ("+", "new")],
    "last line": [(" ", 4), ("-", 5)],
    "everything": [*(("-", n) for n in range(6)), ("+", "new")],
}


@pytest.mark.parametrize("end", ["\n", "\r\n", ""])
@pytest.mark.parametrize("edit", EDITS)
@pytest.mark.parametrize("spelling", SPELLED)
def test_lines_are_found_in_four_passes_and_keep_their_spelling(spelling: str, edit: str, end: str) -> None:
    of_file, of_patch = SPELLED[spelling]
    between = end or "\n"
    rows = [of_file(line) for line in LINES]
    body = [f"{sign}{of_patch(LINES[row]) if isinstance(row, int) else row}" for sign, row in EDITS[edit]]
    used = {row for _, row in EDITS[edit] if isinstance(row, int)}
    middle = [rows[row] if isinstance(row, int) else row for sign, row in EDITS[edit] if sign != "-"]
    wanted = [*rows[: min(used)], *middle, *rows[max(used) + 1 :]]
    closed = end or ("\n" if max(used) == 5 and EDITS[edit][-1][0] == "+" else "")
    before = between.join(rows) + end
    made = applied("*** Update File: f\n" + "\n".join(body), {"f": before})
    assert made == {"f": between.join(wanted) + closed}


@pytest.mark.parametrize(
    ("path", "becomes"),
    [("a.py", "a.py"), ("./a/../b.py", "b.py"), ("/testbed/a/b.py", "a/b.py"), ("/testbed//a.py", "a.py"), ("a b", "a b"), ("-x", "-x"), (".gitignore", ".gitignore")],
)  # fmt: skip
def test_paths_are_those_of_the_repository(path: str, becomes: str) -> None:
    assert repository_path(path, "/testbed") == becomes


@pytest.mark.parametrize("path", ["", " ", ".", "..", "../a", "a/../../b", "/etc/passwd", "/testbed", "/testbed/../a", "/testbedx/a", ".git/config", "a/.git/hooks/x", ".GIT/config", "a\0b", "a\nb", "\ud800", "x" * 3 + "\x7f/../.."])  # fmt: skip
def test_paths_outside_are_refused(path: str) -> None:
    with pytest.raises(PatchError):
        repository_path(path, "/testbed")


@pytest.mark.parametrize("last", ["x" * 300, "new/deep/er.txt/y", "away/new.txt", "secret", "away/secret.txt", "pkg/a.py/x", "bin"])  # fmt: skip
def test_a_patch_that_fails_at_its_last_file_changes_nothing(last: str, tmp_path: Path) -> None:
    """The file that the system refuses to write (a name of 300 letters) is met when others are in place already."""
    place = Place(tmp_path / "place")
    first = "*** Update File: pkg/a.py\n-def f3(x):\n+def f4(x):\n*** Add File: new/deep/er.txt\n+x\n*** Delete File: crlf.txt"
    text = f"*** Begin Patch\n{first}\n*** Add File: {last}\n+x\n*** End Patch"
    assert check(text, place, place.state()) == "refused"
    assert check(text.replace(last, "new/other.txt"), place, place.state()) == "applied"


@pytest.mark.slow
def test_fuzzed_patches_change_all_that_they_say_or_nothing(tmp_path: Path) -> None:
    """On disk and unconfined, so that a patch could reach what its links and paths point at."""
    rng = random.Random(0)
    place = Place(tmp_path / "place")
    before = place.state()
    outcomes = [check(fuzzed(rng), place, before) for _ in range(150)]
    assert min(outcomes.count("applied"), outcomes.count("refused")) > 20

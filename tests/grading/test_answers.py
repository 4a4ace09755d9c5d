r"""What counts as the answer: the last box, the last fenced block, and one spelling for each."""

from __future__ import annotations

import time
from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from radmoe.errors import InputError
from radmoe.grading.answers import boxed, extract, fenced, normalise
from radmoe.types import KINDS, Kind
from radmoe_lab.chat import STYLES, render
from radmoe_lab.tasks import TASKS, training_example

PAIRS = [(family, style) for family, styles in STYLES.items() for style in styles]


@pytest.mark.parametrize(
    ("text", "inside"),
    [
        (r"so \boxed{5} and \boxed{12}.", "12"),
        (r"\boxed{\text{B}}", r"\text{B}"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{7} then \boxed{8", None),
        (r"\boxed{7} then \boxed{8<|im_end|>}", None),
        (r"\boxed{}", ""),
        (r"}} \boxed{3}", "3"),
        (r"\boxed {3}", "3"),
        (r"\boxed42 and", "42"),
        (r"\boxed -1.5.", "-1.5"),
        (r"\boxed\frac{5}{6}", r"\frac{5}{6}"),
        (r"\boxed C", "C"),
        (r"\fbox{11}", "11"),
        (r"\framebox {x+1}", "x+1"),
        (r"\boxed{9}. Put it in \boxed, they said.", "9"),
        (r"\boxed{9} or \boxedness", "9"),
        (r"\\boxed{12}", "12"),
        (r"\boxed{\left\{1, 2\right.}", r"\left\{1, 2\right."),
        (r"\boxed{1} \boxed{2 \boxed{3", None),
        (r"\boxed{a\\} b}", "a\\\\"),
        (r"\boxed{7}, and \fbox{8} or \boxed 9", "7"),
        (r"\fbox{7}, then \fbox{8", None),
        (r"\fbox{\boxed{7}}", "7"),
        (r"\boxed{8} which is the answer: 8 is even.", "8"),
        (r"\boxed{\boxed{8}}", "8"),
        (r"$\boxed{{8}}$", "{8}"),
        (r"put it in \boxed{}: \boxed{8}", "8"),
        ("no box", None),
    ],
)
def test_the_last_box_counts_if_it_closes(text: str, inside: str | None) -> None:
    assert boxed(text) == inside


@pytest.mark.parametrize(
    ("text", "integer", "answer"),
    [
        (r"so \boxed{5} and \boxed{12}.", True, "12, 5"),
        (r"$\boxed{1}$ and $\boxed{2}$", False, "1, 2"),
        (r"\(\boxed{1}\), \(\boxed{2}\), or **\boxed{3}**", False, "1, 2, 3"),
        (r"\boxed{1}\text{ and }\boxed{2}", False, "1, 2"),
        ("\\boxed{1},\n\\boxed{2}", False, "1, 2"),
        (r"$x_1 = \boxed{2}$, $x_2 = \boxed{3}$", False, "2, 3"),
        (r"$x = \boxed{1}$ and $y = \boxed{2}$", False, "x=1, y=2"),
        (r"\boxed{1} and $y = \boxed{2}$", False, "1, 2"),
        (r"\boxed{(1, 2)} and \boxed{(3, 4)}", False, "(1, 2), (3, 4)"),
        (r"\boxed{\frac12} or \boxed{0.5}", False, r"\frac{1}{2}"),  # one answer, written twice
        (r"First \boxed{5}. Then \boxed{12}.", True, "12"),
        (r"\boxed{5} and so the sum is \boxed{12}.", True, "12"),
        ("\\boxed{5},\n\n\\boxed{12}", True, "12"),
        (r"\boxed{5} \boxed{12}", True, "12"),
        (r"\boxed{5} = \boxed{12}", True, "12"),
        (r"<think>\boxed{5} and </think>\boxed{12}", True, "12"),
        (r"\boxed{5} and \boxed{12} but then \boxed{13}", True, "13"),
        (r"\boxed{5 and \boxed{12}", True, "12"),
        (r"\boxed{5} and \boxed{12", True, None),
    ],
)
def test_boxes_of_one_statement_are_a_list_and_otherwise_the_last_counts(
    text: str, integer: bool, answer: str | None
) -> None:
    assert extract("math", text, integer=integer) == answer


@pytest.mark.parametrize("ask", [lambda kind: extract(kind, r"\boxed{1}"), lambda kind: normalise(kind, "1")])
def test_an_unknown_kind_is_refused(ask: Callable[[str], object]) -> None:
    with pytest.raises(InputError, match="unknown kind 'maths': use one of math, choice, code, text, agent"):
        ask("maths")


def test_a_flood_of_open_boxes_costs_nothing() -> None:
    started = time.process_time()
    assert boxed("\\fbox{" * 100_000) is None
    assert extract("math", "\\boxed{1}, " * 100_000) is not None
    assert boxed("\\boxed{" * 100_000) is None
    assert boxed("\\boxed{" * 100_000 + "}" * 100_000) == ""
    assert time.process_time() - started < 2


@pytest.mark.parametrize(
    ("text", "inside"),
    [
        ("```python\na = 1\n```", "a = 1"),
        ("```\na\n```\ntext\n```py\nb\n```\nend", "b"),
        ("<think>```python\nold\n```</think>\n```python\nnew\n```", "new"),
        ("<think>\n```python\nleft open\n</think>\n\n```python\nnew\n```<|im_end|>", "new"),
        ("```python\ncut short", "cut short"),
        ("```python\ncut short<|im_end|>", "cut short"),
        ("  ```python\n  def f(x):\n      return x\n  ```", "def f(x):\n    return x"),
        ("````\n```\nx\n```\n````", "```\nx\n```"),
        ("analysis<|channel|>final<|message|>```python\nx\n```<|return|>", "x"),
        ("<think>\n```python\nonly thought\n```\n</think>\nno code", None),
        ("inline ```x``` only", None),
        ("none", None),
    ],
)
def test_the_last_fenced_block_behind_the_thinking_counts(text: str, inside: str | None) -> None:
    assert fenced(text) == inside


@pytest.mark.parametrize(
    ("kind", "answer", "normal"),
    [
        ("math", "585", "585"),
        ("math", " $0585$ ", "585"),
        ("math", "1,234", "1234"),
        ("math", "1{,}234,567", "1234567"),
        ("math", "12.", "12"),
        ("math", "12.00", "12"),
        ("math", r"\text{ 42 }", "42"),
        ("math", r"\mathbf{\text{42}}", "42"),
        ("math", r"**\,7\!**", "7"),
        ("math", "-0", "0"),
        ("math", "+7", "7"),
        ("math", "-012", "-12"),
        ("math", "000", "0"),
        ("math", r"\frac{1}{2}", r"\frac{1}{2}"),
        ("math", "12,34", "12, 34"),
        ("math", "m + n = 25", "25"),
        ("math", r"100 + 104 = 204\text{ minutes}", "204"),
        ("math", "{{8}}$", "8"),
        ("math", "025", "25"),
        ("math", "  ", None),
        ("choice", "b", "B"),
        ("choice", r"\text{(C)}", "C"),
        ("choice", "D) 585", "D"),
        ("choice", r"$\mathrm{A}$.", "A"),
        ("choice", r"\textbf{(B)}", "B"),
        ("choice", r"{\text{B}}", "B"),
        ("choice", r"B. \text{the second}", "B"),
        ("choice", r"\text{Option C}", "C"),
        ("choice", "The answer", "Theanswer"),
        ("choice", "Answer: D", "D"),
        ("choice", "585", "585"),
        ("choice", "Because", "Because"),
        ("code", "\n\ndef f(x):\n    return x  \n\n", "def f(x):\n    return x"),
        ("code", "\n \n", None),
        ("text", "  The  cat\nsat. ", "The cat sat."),
        ("text", "the cat", "the cat"),
        ("text", " \n ", None),
    ],
)
def test_answers_are_normalised(kind: Kind, answer: str, normal: str | None) -> None:
    assert normalise(kind, answer) == normal


@pytest.mark.parametrize(("answer", "normal"), [(r"\dfrac{2}{4}", r"\frac{1}{2}"), ("m + n = 25", "25 = m+n")])
def test_latex_answers_keep_their_equations(answer: str, normal: str) -> None:
    assert normalise("math", answer, integer=False) == normal


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("<think>Perhaps Oslo.</think>\n\nIt is  Paris.\n<|im_end|>", "It is Paris."),
        (
            "<|channel|>analysis<|message|>Oslo?<|end|><|start|>assistant<|channel|>final<|message|>Paris<|return|>",
            "Paris",
        ),
        ("Paris", "Paris"),
        ("<think>Perhaps Oslo", None),
        ("<|channel|>analysis<|message|>Oslo?", None),
        ("<think>Paris</think>\n<|im_end|>", None),
    ],
)
def test_the_text_of_a_response_is_what_follows_the_thinking(text: str, answer: str | None) -> None:
    assert extract("text", text) == answer


@given(st.integers(-(10**9), 10**9))
def test_every_way_to_write_an_integer_is_the_same_answer(n: int) -> None:
    for text in (f"{n}", f"{n:,}", f"${n}$", f"\\text{{{n}}}", f"{n}.0", f" {n} "):
        assert normalise("math", text) == str(n)


@given(st.integers(0, 2**32), st.sampled_from(PAIRS), st.sampled_from(sorted(TASKS)))
@settings(max_examples=300, deadline=None)
def test_what_was_rendered_is_extracted(seed: int, pair: tuple[str, str], task: str) -> None:
    family, style = pair
    example = training_example(Random(seed), style=style, task=task)
    _, completion = render(example, family)
    kind = TASKS[task].kind
    answer = normalise(kind, example.problem.answer)
    assert answer is not None
    for text in (completion, example.final):
        extracted = extract(kind, text)
        assert extracted is not None
        if (kind, style) == ("text", "instruct"):  # a text is all of the response, and this style works in it
            assert extracted.endswith(answer)
        else:
            assert extracted == answer


@given(st.text(alphabet="\\boxed{}`\n 1aA$<|/think>", max_size=80), st.sampled_from(KINDS), st.booleans())
@settings(max_examples=300)
def test_any_text_can_be_graded(text: str, kind: Kind, integer: bool) -> None:
    assert extract(kind, text, integer=integer) != ""

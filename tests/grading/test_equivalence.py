r"""Equal answers fall into one class, different ones never do, and no expression holds the grader up."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from fractions import Fraction
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from messy import CLASSES
from radmoe.errors import InputError
from radmoe.grading import equivalence
from radmoe.grading.equivalence import Classes, Equivalence
from radmoe.grading.latex import normal_form

pytestmark = pytest.mark.skipif(os.name != "posix", reason="the algebra process needs POSIX")

POISON = [
    "9^{9^{9^{9}}}",
    r"(9^{9^{9}})!",
    r"\sum_{k=1}^{10^{12}}\frac{1}{k^{k}+\sin k}",
]


@pytest.fixture(scope="module")
def equal() -> Iterator[Equivalence]:
    with Equivalence() as opened:
        yield opened


# -- one class, and only one ------------------------------------------------------------------------


@pytest.mark.parametrize("row", CLASSES, ids=[row[0] for row in CLASSES])
def test_ways_to_write_an_answer_are_one_class(equal: Equivalence, row: list[str]) -> None:
    for other in row:
        assert equal.same(row[0], other), other
        assert equal.same(other, row[0]), other


def test_different_answers_are_never_one_class(equal: Equivalence) -> None:
    merged = [(a, b) for one, two in combinations(CLASSES, 2) for a in one[:4] for b in two[:4] if equal.same(a, b)]
    assert merged == []


@pytest.mark.parametrize(
    ("middle", "ends"),
    [
        (r"9\%", ("9", "0.09")),
        ("1, 2", ("(1, 2)", "(2, 1)")),
        ("0.333333", (r"\frac{1}{3}", "0.3333334")),
        ("x = 1, y = 1", ("1", "x = 1")),
        ("E", ("e", "1")),
    ],
)
def test_where_others_are_not_transitive_we_are(equal: Equivalence, middle: str, ends: tuple[str, str]) -> None:
    """math-verify 0.9 equates the middle with both ends (or refuses only one way), but not the ends."""
    left, right = (equal.same(middle, end) for end in ends)
    assert not (left and right) or equal.same(*ends)


numbers = st.recursive(
    st.integers(0, 12).map(lambda n: (str(n), Fraction(n)))
    | st.tuples(st.integers(0, 9), st.integers(1, 9)).map(lambda p: (rf"\frac{{{p[0]}}}{{{p[1]}}}", Fraction(*p)))
    | st.integers(0, 99).map(lambda n: (f"{n // 10}.{n % 10}", Fraction(n, 10))),
    lambda inner: (
        st.tuples(inner, inner).map(lambda p: (rf"\left({p[0][0]} + {p[1][0]}\right)", p[0][1] + p[1][1]))
        | st.tuples(inner, inner).map(lambda p: (f"({p[0][0]}-({p[1][0]}))", p[0][1] - p[1][1]))
        | st.tuples(inner, inner).map(lambda p: (f"({p[0][0]})({p[1][0]})", p[0][1] * p[1][1]))
        | st.tuples(inner, inner).map(lambda p: (rf"({p[0][0]}) \times ({p[1][0]})", p[0][1] * p[1][1]))
        | inner.map(lambda p: (rf"\left({p[0]}\right)^2", p[1] ** 2))
        | inner.map(lambda p: (rf"-\dfrac{{{p[0]}}}{{3}}", -p[1] / 3))
    ),
    max_leaves=4,
)


@pytest.mark.slow
@given(numbers, st.fractions(max_denominator=30).filter(bool))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_sum_or_product_is_the_number_it_is(
    equal: Equivalence, written: tuple[str, Fraction], error: Fraction
) -> None:
    latex, value = written
    assert equal.same(latex, str(value))
    assert not equal.same(latex, str(value + error))


def test_the_gold_answer_or_the_first_seen_stands_for_its_class(equal: Equivalence) -> None:
    classes = Classes(equal, r"\sqrt{12}")
    assert classes.gold == r"\sqrt{12}"
    seen = [
        r"2\sqrt{3}",
        r"\frac{2}{\sqrt{8}}",
        r"\frac{1}{\sqrt{2}}",
        "x = 7",
        "7.0",
        r"\frac{\sqrt{2}}{2}",
        r"12^{1/2}",
    ]
    first = r"\frac{2}{\sqrt{8}}"
    assert [classes.add(answer) for answer in seen] == [classes.gold, first, first, "7", "7", first, classes.gold]


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("10^{80}+x", "10^{80}+y"),
        (r"10^{70}+\sqrt{2}", r"10^{70}+\sqrt{3}"),
        (r"10^{-70}\sqrt{2}", r"10^{-71}\sqrt{2}"),
        (r"\sqrt{2}\cdot 10^{-90}", "0"),
        (r"\ln(640320^3+744)/\sqrt{163}", r"\pi"),
        (r"x|y|", "xy"),
        (r"\sqrt{u^2v}", r"u\sqrt{v}"),
        (r"\lfloor x \rfloor", r"\lceil x \rceil - 1"),
    ],
)
def test_values_that_are_close_or_agree_in_places_are_different(equal: Equivalence, a: str, b: str) -> None:
    assert not equal.same(a, b)
    assert not equal.same(b, a)


def test_what_cancels_is_found_at_any_size(equal: Equivalence) -> None:
    assert equal.same(r"10^{90}+\sqrt{7}-10^{90}", r"\sqrt{7}")
    assert equal.same(r"\frac{1}{10^{90}+\sqrt{7}-10^{90}}", r"\frac{\sqrt{7}}{7}")


# -- in the terms of the gold answer ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("gold", "right", "wrong"),
    [
        ("8", ["8", r"8\text{ cm}", r"8\text{ kg}"], [r"80\text{ mm}", "9"]),
        (
            r"8\text{ cm}",
            ["8", r"8\text{ cm}", r"80\text{ mm}", r"8\text{ apples}"],
            [r"8\text{ kg}", r"8\text{ m}", "80"],
        ),
        ("(1, 2)", ["(1,2)", "x=1, y=2", "1<x<2"], ["[1,2]", "(2,1)"]),
        ("1 < t < 2", ["(1,2)", r"]1,2["], ["x=1, y=2", r"1 \le t < 2"]),
        ("a = 1, b = 2", ["(1,2)", "(a,b)=(1,2)", "(b,a)=(2,1)"], ["1<x<2", "1, 2", "(2,1)"]),
        ("y = 3x - 2", ["3x-2", "3x-y=2", "y+2=3x"], ["x = 3y-2", "3x"]),
    ],
)
def test_what_the_gold_answer_says_decides_what_must_agree(
    equal: Equivalence, gold: str, right: list[str], wrong: list[str]
) -> None:
    classes = Classes(equal, gold)
    assert [answer for answer in right if classes.add(answer) != classes.gold] == []
    assert [answer for answer in wrong if classes.add(answer) == classes.gold] == []


@pytest.mark.parametrize("order", [1, -1])
def test_classes_do_not_depend_on_the_order_of_the_answers(equal: Equivalence, order: int) -> None:
    """`5` is equal to `5 cm` and to `5 km`, which are different: the gold answer's unit, or its lack of one, settles it."""
    answers = ["5", r"5\text{ cm}", r"5\text{ km}", "(5, 6)", "5 < x < 6", "x = 5, y = 6"][::order]
    for gold, classes in (("7", 2), (r"7\text{ cm}", 3), ("6 < x < 7", 3)):
        sorted_in = Classes(equal, gold)
        assert len({sorted_in.add(answer) for answer in answers}) == classes, gold


# -- what it costs ----------------------------------------------------------------------------------


@pytest.mark.parametrize("poison", POISON)
def test_a_poisoned_expression_costs_at_most_its_timeout(poison: str) -> None:
    with Equivalence(timeout=0.7) as equal:
        assert equal.same(r"\sqrt{8}", r"2\sqrt{2}")  # the process is up
        classes = Classes(equal, r"\sqrt{12}")
        others = [rf"\sqrt{{{n}}}" for n in (2, 3, 5, 7, 11)]
        for answer in others:
            classes.add(answer)
        started = time.monotonic()
        assert classes.add(poison) not in {*others, classes.gold}
        assert time.monotonic() - started < 0.7 + 0.5
        started = time.monotonic()
        for answer in others:
            assert not equal.same(poison, answer)
            assert not equal.same(answer, poison)
        assert time.monotonic() - started < 0.5
        assert classes.add(r"2\sqrt{3}") == classes.gold


def test_a_list_of_poison_costs_one_timeout() -> None:
    with Equivalence(timeout=0.5) as equal:
        assert equal.same(r"\sqrt{8}", r"2\sqrt{2}")
        poison = ", ".join(f"{n}^{{9^{{9^{{9}}}}}}" for n in range(2, 12))
        started = time.monotonic()
        assert not equal.same(", ".join(rf"\sqrt{{{n}}}" for n in range(2, 12)), poison)
        assert time.monotonic() - started < 0.5 + 0.5


def test_poison_in_the_gold_answer_is_found_once() -> None:
    with Equivalence(timeout=0.5) as equal:
        classes = Classes(equal, POISON[0])
        assert classes.add(r"\sqrt{2}") == r"\sqrt{2}"
        started = time.monotonic()
        for n in (3, 5, 7):
            assert classes.add(rf"\sqrt{{{n}}}") == rf"\sqrt{{{n}}}"
        assert classes.add(POISON[0]) == classes.gold
        assert time.monotonic() - started < 5  # the process starts once more, and waits no more


def test_the_same_pair_is_asked_once_and_numbers_never(monkeypatch: pytest.MonkeyPatch) -> None:
    with Equivalence() as equal:
        assert not equal.same("1/2", "0.51")
        assert not equal.same("(1, 2)", "(2, 1)")
        assert equal._process is None
        assert equal.same(r"\sqrt{8}", r"2\sqrt{2}")
        monkeypatch.setattr(equal, "_ask", lambda *_: pytest.fail("asked again"))
        assert equal.same(r"2\sqrt{2}", r"\sqrt{8}")


def test_a_process_that_dies_is_replaced() -> None:
    with Equivalence() as equal:
        assert equal.same(r"\sqrt{8}", r"2\sqrt{2}")
        assert equal._process
        equal._process.kill()
        equal._process.wait()
        assert not equal.same(r"\sqrt{18}", r"3\sqrt{2}")  # in doubt, different
        assert equal.same(r"\sqrt{27}", r"3\sqrt{3}")


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_is_limited() -> None:
    with Equivalence(memory=1 << 30) as equal:
        assert equal.same(r"\sqrt{8}", r"2\sqrt{2}")
        assert equal._process
        limits = Path(f"/proc/{equal._process.pid}/limits").read_text().splitlines()
        assert [line.split()[3:5] for line in limits if "address space" in line] == [[str(1 << 30)] * 2]


def test_nothing_is_left_behind() -> None:
    before = threading.active_count()
    with Equivalence() as equal:
        equal.same(r"\sqrt{8}", r"2\sqrt{2}")
        assert equal._process
        process = equal._process.pid
    assert not Path(f"/proc/{process}").exists()
    assert threading.active_count() == before
    equal.close()


@pytest.mark.slow
def test_a_grader_that_is_gone_takes_its_process_along() -> None:
    """Killed while the process computes: an alarm ends it, a second after the timeout."""
    program = (
        "from radmoe.grading.equivalence import Equivalence\n"
        "e = Equivalence(timeout=1)\n"
        "e.same(r'\\sqrt{8}', r'2\\sqrt{2}')\n"
        "print(e._process.pid, flush=True)\n"
        f"e.same(r'\\sqrt{{2}}', {POISON[0]!r})\n"
    )
    grader = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    assert grader.stdout
    with grader.stdout as output:
        process = int(output.readline())
        time.sleep(0.2)
        grader.send_signal(signal.SIGKILL)
        grader.wait()
    deadline = time.monotonic() + 10
    while _runs(process) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not _runs(process)


def _runs(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_without_mpmath_one_line_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bare = tmp_path / "verifier.py"
    bare.write_text(Path(equivalence._SCRIPT).read_text().replace("import mpmath", "import mpmath_not_there"))
    monkeypatch.setattr(equivalence, "_SCRIPT", bare)
    with Equivalence() as equal:
        assert equal.same("1/2", "0.5")
        with pytest.raises(InputError, match=r"needs mpmath, which is not installed: pip install 'radmoe\[eval\]'"):
            equal.same(r"\sqrt{8}", r"2\sqrt{2}")
    bare.write_text("raise SystemExit")
    with Equivalence() as equal, pytest.raises(InputError, match="does not start"):
        equal.same(r"\sqrt{8}", r"2\sqrt{2}")


def test_a_timeout_that_cannot_be_used_is_named() -> None:
    with pytest.raises(InputError, match="must be positive, got 0"):
        Equivalence(timeout=0)


@pytest.mark.parametrize(
    ("gold", "same", "other"),
    [
        (
            "20",
            (r"20\%", r"20\text{ percent}", "20 percent", r"20\,\%", r"2000\%"),
            (r"0.2", r"\frac15", r"2\%", r"21\%"),
        ),
        ("12.5", (r"12.5\%", r"\frac{25}{2}\%", r"1250\%"), (r"\frac18", r"12\%", r"125\%")),
        ("-3", (r"-3\%", r"-300\%"), (r"3\%",)),
        ("1", (r"100\%", r"1\%"), (r"10\%",)),
        ("0", (r"0\%",), (r"1\%",)),
        ("0.2", (r"20\%", r"\frac15"), (r"0.2\%", "20", r"2\%")),
        (r"\frac18", (r"12.5\%", "0.125"), ("12.5", r"\frac18\%")),
        (r"20\%", (r"20\text{ percent}", "0.2", r"\frac15"), ("20", r"2000\%")),
        (r"20\text{ cm}", ("20", r"20\text{ cm}"), (r"20\%",)),
        ("20, 30", (r"20\%, 30\%", r"20\%\text{ and }30\%"), ("0.2, 0.3",)),
        ("(20, 30)", (r"(20\%, 30\%)",), (r"(30\%, 20\%)",)),
        (r"5\sqrt2", (), (r"5\%",)),
        ("20", (r"x = 20\%", r"\text{about }20\%"), (r"5 + 20\%", r"20\%x")),
    ],
)
@pytest.mark.parametrize("extracted", [True, False])
def test_percent_signs_are_read_as_the_gold_answer_is_written(
    gold: str, same: tuple[str, ...], other: tuple[str, ...], extracted: bool
) -> None:
    integer = re.fullmatch(r"-?\d+", gold) is not None
    with Equivalence() as equal:
        classes = Classes(equal, gold, integer=integer)
        for answer, right in [(answer, True) for answer in same] + [(answer, False) for answer in other]:
            normal = normal_form(answer, integer=integer) if extracted else answer
            assert normal is not None
            assert (classes.add(normal) == classes.gold) == right, answer


def test_wrong_answers_in_percent_are_one_class_with_those_without() -> None:
    with Equivalence() as equal:
        classes = Classes(equal, "20", integer=True)
        assert classes.add("30") == classes.add(r"30\%") == classes.add("30 percent")
        assert classes.add("0.3") != classes.add("30")

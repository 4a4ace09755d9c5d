"""Multiple choice: which letter an answer names."""

from __future__ import annotations

import time

import pytest

from radmoe.grading.answers import extract
from radmoe.grading.choices import letter_of


@pytest.mark.parametrize(
    ("answer", "letter"),
    [
        ("c", "C"),
        ("(D)", "D"),
        ("[B]", "B"),
        (r"\underline{\text{E}}", "E"),
        (r"\textcolor{red}{\mathbf{D}}", "D"),
        (r"\Large\textbf{(B)}", "B"),
        ("\uff23", "C"),
        ("\uff08\uff24\uff09", "D"),
        ("My answer is C.", "C"),
        ("the correct option is (b)", "B"),
        ("So, the final answer: **D**", "D"),
        (r"\text{Choice B}", "B"),
        ("B (3.2 eV)", "B"),
        ("C: because it is larger", "C"),
        (r"\textbf{(E)}\ 36", "E"),
        (r"D.\ \frac{3}{4}", "D"),
        ("B = 12", "B"),
        ("C is correct", "C"),
        ("E) none of (A) and (B)", "E"),
    ],
)
def test_one_letter_is_found_under_its_dress(answer: str, letter: str) -> None:
    assert letter_of(answer) == letter


@pytest.mark.parametrize(
    ("answer", "letters"),
    [
        ("(B) and (D)", "BD"),
        ("D, B", "BD"),
        ("C or E", "CE"),
        ("A/C", "AC"),
        ("Both B and C", "BC"),
        ("B and C are correct", "BC"),
        ("DBA", "ABD"),
        (r"\text{A, C, and D}", "ACD"),
    ],
)
def test_several_letters_are_an_answer_of_their_own(answer: str, letters: str) -> None:
    assert letter_of(answer) == letters
    assert letter_of(letters) == letters


@pytest.mark.parametrize(
    "answer", ["A neutron", "A 5 kg mass", "Boron", "I think so", "not B", "B and the others", "42", "C_2"]
)
def test_words_and_formulas_name_no_letter(answer: str) -> None:
    named = letter_of(answer)
    assert named is not None
    assert len(named) > 1
    assert not named.isupper() or named == "C_2"


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        ("<think>Perhaps B.</think>\nThe answer is C.", "C"),
        ("First I thought the answer is A.\nBut no: the answer is (D).", "D"),
        ("B", "B"),
        ("(C) 17 m", "C"),
        ("Answer: **B**\n", "B"),
        (r"The answer is A, or rather \boxed{\text{B}}", "B"),
        ("The answer is a neutron.", None),
        ("It could be A.\nIt could be B.", None),
        ("<think>The answer is B", None),
    ],
)
def test_without_a_box_the_response_may_state_the_letter(text: str, letter: str | None) -> None:
    assert extract("choice", text) == letter


@pytest.mark.parametrize(
    ("answer", "letters"),
    [
        ("(A, C)", "AC"),
        ("(A,C,D)", "ACD"),
        ("[B; D]", "BD"),
        ("(A and C)", "AC"),
        ("(A, B, and C)", "ABC"),
        (r"\text{(A, C)}", "AC"),
        ("(A) and (C)", "AC"),
        ("(B", "B"),
        ("The answer is (B", "B"),
    ],
)
def test_letters_in_one_pair_of_brackets_and_a_bracket_cut_off_are_read(answer: str, letters: str) -> None:
    assert letter_of(answer) == letters


@pytest.mark.parametrize("answer", ["(a, b)", "(Boron", "(A proton", "(A, proton)", "(1, 2)", "("])
def test_brackets_around_anything_else_name_no_letter(answer: str) -> None:
    named = letter_of(answer)
    assert named is not None
    assert not (named.isalpha() and named.isupper())


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        (r"S=\boxed{2}. The answer is (A).", "A"),
        (r"The answer is (A), since $S=\boxed{2}$.", "A"),
        (r"The answer is (A), or rather \boxed{C}", "C"),
        (r"S=\boxed{2}.", "2"),
        (r"<think>The answer is A. $S=\boxed{2}$", "2"),  # the thinking has not ended, so nothing is stated
        (r"\boxed{A} and \boxed{C}", "AC"),
        (r"Not \boxed{A}. It is \boxed{C}", "C"),
        ("(a) The ball rises and falls.", None),
        ("a. The ball rises and falls.", None),
        ("(a)", "A"),
        ("(b) 585", "B"),
        ("b", "B"),
        ("(A) The ball rises and falls.", "A"),
        ("(A) The ball rises. (B) The ball falls.", None),
        ("D) none of (A) and (B)", "D"),
        ("Let us consider each choice: (A) means the ball rises.", None),
        ("We look at every answer: (A) means the ball rises.", None),
        ("The price of the put option is: P", None),
        ("The price of the call option is C", None),
        ("The best choice is: (B)", "B"),
        ("Option: C", "C"),
        ("The ball rises\n**Option:** C", "C"),
        ("The ball rises, so the correct answer choice is (B).", "B"),
        ("The most likely option is D, as said.", "D"),
        ("Of each option: (A) means little", None),
        ("The answer is\nB", "B"),
        ("It rises.\nThe option is (D).", "D"),
        ("It rises.\nMy choice: (B) because it falls.", "B"),
        ("It rises.\nAnswer: (A, C)", "AC"),
        ("It rises.\nThe answer is (B", "B"),
    ],
)
def test_what_states_a_letter_and_what_only_mentions_one(text: str, letter: str | None) -> None:
    assert extract("choice", text) == letter


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        (r"\boxed{P}. So the answer is (B).", "B"),
        (r"\boxed{E}. So the answer is (B).", "B"),
        (r"\boxed{D}. So the answer is (B).", "D"),
        (r"\boxed{A, E}", "A,E"),
        ("The answer is P", None),
        ("The answer is D", "D"),
        ("The answer is (B). By the way, its answer is V.", "B"),
    ],
)
def test_letters_beyond_the_options_name_nothing(text: str, letter: str | None) -> None:
    assert extract("choice", text, letters="ABCD") == letter


@pytest.mark.parametrize("piece", ["answer is ", "option: ", "\n", "```\n", "\\\\", "\n - _ "])
@pytest.mark.parametrize("form", [r"\boxed{%s}", r"%s \boxed{5}", "</think>%s", "The answer is %s"])
def test_a_text_that_repeats_itself_is_read_in_time(piece: str, form: str) -> None:
    """A letter was looked for at every repetition through all of the rest: 100,000 characters took minutes."""
    began = time.process_time()
    extract("choice", form % (piece * (100_000 // len(piece))))
    assert time.process_time() - began < 5

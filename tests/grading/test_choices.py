"""Multiple choice: which letter an answer names."""

from __future__ import annotations

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

"""Small datasets in the shapes of the real ones; the problems are our own."""

from __future__ import annotations

import base64
import json
import pickle
import zlib
from pathlib import Path
from typing import Any

INTEGERS = [
    {"question": "What is $3 \\cdot 68$?", "answer": "204"},
    {"question": "How many divisors has $2^{24}$?\n", "answer": "25"},
]
LATEX = [
    {"problem_idx": 1, "problem": "How long is the diagonal of a cube of side $2$?", "answer": "2\\sqrt{3}"},
    {
        "problem_idx": 2,
        "problem": "Solve $x^2 - x - 1 = 0$.",
        "answer": "\\frac{1+\\sqrt{5}}{2}, \\frac{1-\\sqrt{5}}{2}",
    },
]
CHOICES = [
    {
        "Record ID": f"rec{i}",
        "Question": f"Which of these is {i} squared?",
        "Correct Answer": str(i * i),
        "Incorrect Answer 1": str(i * i + 1),
        "Incorrect Answer 2": f"{i * i + 2}\n",
        "Incorrect Answer 3": str(2 * i + 50),
    }
    for i in range(3, 9)
]


def packed(cases: list[dict[str, str]]) -> str:
    return base64.b64encode(zlib.compress(pickle.dumps(json.dumps(cases)))).decode()


CONTESTS: list[dict[str, Any]] = [
    {
        "question_id": "sum_a",
        "question_content": "Print the sum of the numbers on the second line.",
        "starter_code": "",
        "metadata": "{}",
        "public_test_cases": json.dumps([{"input": "2\n1 2\n", "output": "3\n", "testtype": "stdin"}]),
        "private_test_cases": packed([{"input": "1\n-4\n", "output": "-4\n", "testtype": "stdin"}]),
    },
    {
        "question_id": "2",
        "question_content": "Return the list in reverse.",
        "starter_code": "class Solution:\n    def back(self, xs: List[int]) -> List[int]:\n        ",
        "metadata": '{"func_name": "back"}',
        "public_test_cases": json.dumps([{"input": "[1, 2]", "output": "[2, 1]", "testtype": "functional"}]),
        "private_test_cases": packed([{"input": "[]", "output": "[]", "testtype": "functional"}]),
    },
]


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path

"""The model chooses among its own answers: universal self-consistency (Chen et al. 2023), at its cost in tokens.

It is shown the question and the final responses of the rollouts, as many as fit its context, and asked which agrees best with
the others. What it reads and writes is counted. A choice that cannot be read is none, and counts as wrong.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from radmoe.grading.answers import response
from radmoe.pool import Pool
from radmoe.pool.schema import disk_errors
from radmoe.problems import Question
from radmoe_studies.replicate.setup import Setup

_NAMED = re.compile(r"[Rr]esponse\W{0,3}(\d{1,6})")
_ASK = (
    "Evaluate these responses. Select the most consistent response, based on majority consensus. "
    'End with the line "The most consistent response is Response X", where X is its number.'
)
RESERVE = 4  # a share of the context, one over this, that stays free for the choice


@dataclass(frozen=True)
class Choice:
    """The model's choice on a problem: the place of the rollout among the pool's, -1 for none.

    `shown` counts the responses that it was shown, and `tokens` those of its prompt and of what it wrote.
    """

    problem_id: str
    pick: int
    shown: int
    tokens: int


def choices(
    setup: Setup, pool: Pool, questions: Sequence[Question], kept: Path, tell: Callable[[int, int], None]
) -> list[Choice]:
    """The choice on every problem. Each is written to the file `kept` at once, and what is there is not asked again."""
    done = _read(kept)
    with disk_errors(kept), kept.open("a", encoding="utf-8") as file:
        for place, question in enumerate(questions):
            tell(place, len(questions))
            texts = pool.texts(question.problem_id)
            if (name := (question.problem_id, len(texts))) not in done:
                done[name] = made = choose(setup, question, texts)
                file.write("\n" + json.dumps(asdict(made) | {"of": len(texts)}))  # apart from a line that was cut off
                file.flush()
    return [done[question.problem_id, len(pool.rollout_indices(question.problem_id))] for question in questions]


def _read(kept: Path) -> dict[tuple[str, int], Choice]:
    """The choices of a file, by problem and number of rollouts; a line that was cut off when it was written is none."""
    done = {}
    for line in kept.read_text(encoding="utf-8").splitlines() if kept.exists() else ():
        try:
            body = json.loads(line)
            of = body.pop("of")
            done[body["problem_id"], of] = Choice(**body)
        except (ValueError, KeyError, TypeError):
            continue
    return done


def choose(setup: Setup, question: Question, texts: Sequence[str]) -> Choice:
    """Ask the model once which of some texts it would return."""
    context = setup.engine.context or setup.sampling.max_tokens
    shown, prompt = _prompt(setup, question, [response(text) for text in texts], context - context // RESERVE)
    if len(shown) < 2:
        return Choice(question.problem_id, shown[0] if shown else -1, len(shown), 0)
    (done,) = setup.engine.generate(
        [prompt],
        1,
        sampling=setup.sampling,
        batch_size=1,
        keys=[f"choose {question.problem_id}"],
        kinds=[question.kind],
        profile=setup.profile,
    )
    pick = named(response(done.text) or "", len(shown))
    return Choice(question.problem_id, -1 if pick is None else shown[pick], len(shown), len(prompt) + len(done.rollout))


def _prompt(setup: Setup, question: Question, finals: Sequence[str | None], room: int) -> tuple[list[int], list[int]]:
    """The places of the responses that are shown, the first that fit, and the prompt as tokens."""
    asked = question.content
    if not isinstance(asked, str):
        asked = "\n\n".join(str(message.get("content", "")) for message in asked)
    there = [place for place, final in enumerate(finals) if final and final.strip()]

    def tokens(count: int) -> list[int]:
        listed = "\n\n".join(f"Response {i}: {(finals[place] or '').strip()}" for i, place in enumerate(there[:count]))
        return setup.ids(f"I have generated the following responses to the question: {asked}\n\n{listed}\n\n{_ASK}")

    low, high = 0, len(there)  # the most that fit, by bisection: the prompt grows with each
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if len(tokens(middle)) <= room else (low, middle - 1)
    return there[:low], tokens(low) if low else []


def named(text: str, shown: int) -> int | None:
    """The number of the response that a text names last; None where it names none that was shown."""
    numbers = [int(match[1]) for match in _NAMED.finditer(text)]
    return numbers[-1] if numbers and numbers[-1] < shown else None

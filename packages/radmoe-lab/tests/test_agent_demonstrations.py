"""Demonstrations: they end well, say what is true, and what they print is what the commands print."""

from __future__ import annotations

import ast
import re
from random import Random

import numpy as np
import pytest

from radmoe_lab.agent.corpus import draw_demonstration
from radmoe_lab.agent.demonstrations import Demonstration, training_demonstration
from radmoe_lab.agent.shell import patch
from radmoe_lab.agent.templates import FINISHED, STEP_LIMIT, SUBMIT, actions, prompt_text, submission
from radmoe_lab.agent.workplace import Workplace
from radmoe_lab.corpus import draw
from radmoe_lab.models import AGENT_CONTEXT, AGENTS
from radmoe_lab.tokenizer import build, learn

pytestmark = pytest.mark.slow

KINDS = ("ls", "cat -n", "cat [a-z]", "cat >", "python3 check", "python3 -", r"sed -i '\d+s", r"sed -i '\d+a", "sed -i 's",
         "git checkout", "git diff", "grep", "echo")  # fmt: skip


@pytest.fixture(scope="module")
def demonstrations() -> list[Demonstration]:
    rng = Random(11)
    return [training_demonstration(rng) for _ in range(600)]


def test_they_repeat_with_their_seed() -> None:
    first, again, other = (training_demonstration(Random(seed)) for seed in (1, 1, 2))
    assert first == again != other


def test_they_end_with_a_submission_that_mends_unless_they_give_up(demonstrations: list[Demonstration]) -> None:
    mended = [each.files == each.repository.fixed for each in demonstrations]
    assert 0.93 < np.mean(mended) < 1
    for each, right in zip(demonstrations, mended, strict=True):
        assert each.turns[-1].ran.command == SUBMIT
        assert sum(turn.ran.command == SUBMIT for turn in each.turns) == 1
        assert right or "give up" in each.turns[-1].thought or "stop here" in each.turns[-1].thought
        assert len(each.turns) <= STEP_LIMIT


def test_a_mistake_is_not_learned_and_what_follows_it_is(demonstrations: list[Demonstration]) -> None:
    mistaken = [each for each in demonstrations if not all(turn.learn for turn in each.turns)]
    assert 0.03 < len(mistaken) / len(demonstrations) < 0.3
    for each in mistaken:
        (place,) = [i for i, turn in enumerate(each.turns) if not turn.learn]
        assert each.turns[place].ran.files != each.repository.fixed
        assert each.turns[place + 1].ran.command == "python3 check.py"
        assert each.turns[place + 1].ran.code == 1


def test_the_arithmetic_in_their_thoughts_is_right(demonstrations: list[Demonstration]) -> None:
    sums = re.compile(r"(-?\d+) ([-+*/]) (-?\d+) = (-?\d+)")
    known = {"+": int.__add__, "-": int.__sub__, "*": int.__mul__, "/": int.__floordiv__}
    count = 0
    for turn in (turn for each in demonstrations for turn in each.turns):
        for a, sign, b, c in sums.findall(turn.thought):
            assert known[sign](int(a), int(b)) == int(c), turn.thought
            count += 1
    assert count > 300


def test_every_reply_has_one_command_and_a_thought(demonstrations: list[Demonstration]) -> None:
    for each in demonstrations:
        messages = each.messages()
        assert [m["role"] for m in messages] == ["system", "user"] + ["assistant", "user"] * (len(each.turns) - 1) + [
            "assistant"
        ]
        for turn, message in zip(each.turns, messages[2::2], strict=True):
            assert actions(message["content"]) == [turn.ran.command]
            assert message["content"].startswith("<think>\n")
            assert message["content"].count("</think>") == 1


def test_what_is_learned_is_the_assistants_messages_with_their_end() -> None:
    tokenizer = build("agent")
    for seed in range(40):
        demonstration = training_demonstration(Random(seed))
        ids, learned = draw_demonstration(Random(seed), tokenizer)
        text = prompt_text(demonstration.messages()).removesuffix("\n<|im_start|>assistant\n")
        assert tokenizer.decode(ids.tolist(), skip_special_tokens=False) == text
        wanted = "".join(
            message["content"] + "<|im_end|>"
            for turn, message in zip(demonstration.turns, demonstration.messages()[2::2], strict=True)
            if turn.learn
        )
        assert tokenizer.decode(ids[learned].tolist(), skip_special_tokens=False) == wanted
        assert len(ids) < AGENT_CONTEXT / 2


def test_the_corpus_of_the_agent_is_its_demonstrations() -> None:
    (name,) = AGENTS
    rows = draw(name, 3, 5)
    rng, tokenizer = Random(3), build("agent")
    for ids, learned in rows:
        again, the_same = draw_demonstration(rng, tokenizer)
        assert np.array_equal(ids, again)
        assert np.array_equal(learned, the_same)


def test_the_shipped_tokenizer_spells_trajectories_in_two_thirds_of_the_tokens_of_chatmls() -> None:
    agent, chatml = build("agent"), build("chatml")
    texts = [prompt_text(training_demonstration(Random(seed)).messages()) for seed in range(30)]
    lengths = [sum(len(tokenizer.encode(text).ids) for text in texts) for tokenizer in (agent, chatml)]
    assert lengths[0] < 0.67 * lengths[1]
    assert learn("agent").get_vocab_size() == agent.get_vocab_size() == 1024


def sample_of_all_kinds(demonstrations: list[Demonstration]) -> list[Demonstration]:
    """A few demonstrations in which every kind of command occurs."""
    chosen: list[Demonstration] = []
    for kind in KINDS:
        pattern = re.compile(kind)
        if not any(pattern.match(turn.ran.command) for each in chosen for turn in each.turns):
            chosen.append(
                next(each for each in demonstrations if any(pattern.match(t.ran.command) for t in each.turns))
            )
    return chosen + demonstrations[:2]


def test_commands_really_print_and_do_what_demonstrations_say(
    demonstrations: list[Demonstration],
) -> None:
    """The simulation against bash, git, sed and Python in a real repository."""
    for each in sample_of_all_kinds(demonstrations):
        with Workplace(each.repository.files) as works:
            for turn in each.turns[:-1]:
                printed = works.run(turn.ran.command)
                assert (printed.output, printed.code) == (turn.ran.output, turn.ran.code), turn.ran.command
                read = "import glob; print({name: open(name).read() for name in glob.glob('*.py')})"
                assert ast.literal_eval(works.run(f'python3 -c "{read}"').output) == turn.ran.files
            submitted = works.run(each.turns[-1].ran.command)
        assert submitted.output.startswith(FINISHED)
        assert submission(submitted.output, submitted.code) == patch(each.files, each.repository.files)

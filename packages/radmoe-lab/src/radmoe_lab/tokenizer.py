"""The lab models' tokenizers: byte-level BPE of 896 tokens (the agent's: 1,024), learned from the tasks' own text.

They were learned once and are shipped, because weights know tokens by their ids, and a word changed in a task would
move them all. Text is split into pieces as in Qwen3, and digits stand alone, so that `\\boxed{` and fences span several
tokens and merge with their neighbours (` $\\`, `boxed`, `{B`) as they do in vocabularies a hundred times as large.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from radmoe_lab.chat import ADDED, FAMILIES, PAD, SPECIAL, STYLES, chat_template, check_family, render
from radmoe_lab.tasks import TASKS, training_example
from radmoe_lab.tasks.draw import seeded

if TYPE_CHECKING:
    from tokenizers import Tokenizer

AGENT = "agent"  # the tokenizer of the agent, which speaks ChatML about bash and Python
VOCAB_SIZES = {**dict.fromkeys(FAMILIES, 896), AGENT: 1024}
_EXAMPLES = 150  # per task and style
_DEMONSTRATIONS = 600  # of the agent
_PIECES = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@cache
def build(name: str) -> Tokenizer:
    """The shipped tokenizer of a chat family, or of the agent."""
    from tokenizers import Tokenizer

    _family(name)
    return Tokenizer.from_file(str(Path(__file__).parent / "tokenizers" / f"{name}.json"))


def learn(name: str, seed: int = 0) -> Tokenizer:
    """Learn a tokenizer from the tasks as they are now. The same seed gives the same bytes; it takes half a second."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

    family = _family(name)
    controls = [AddedToken(text, special=True, normalized=False) for text in SPECIAL[family]]
    controls += [AddedToken(text, special=False, normalized=False) for text in ADDED[family]]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_PIECES), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZES[name] - len(controls),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    corpus = _demonstrations(seed) if name == AGENT else _corpus(family, seed)
    controls_apart = re.compile("|".join(map(re.escape, SPECIAL[family] + ADDED[family])))
    tokenizer.train_from_iterator((part for text in corpus for part in controls_apart.split(text) if part), trainer)
    tokenizer.add_tokens(controls)
    return tokenizer


def fast_tokenizer(name: str) -> Any:
    """A shipped tokenizer for transformers, with its chat template, end and padding tokens."""
    from transformers import PreTrainedTokenizerFast

    family = _family(name)
    wrap: Any = PreTrainedTokenizerFast  # untyped
    fast = wrap(
        tokenizer_object=build(name),
        eos_token=SPECIAL[family][0],
        pad_token=PAD,
        padding_side="left",
        clean_up_tokenization_spaces=False,
    )
    fast.chat_template = chat_template(family)
    return fast


def _family(name: str) -> str:
    """Return the chat family of a tokenizer."""
    if name == AGENT:
        return "chatml"
    check_family(name)
    return name


def _corpus(family: str, seed: int) -> Iterator[str]:
    """Rendered examples of every task and style. They are cut at the control tokens, which no merge may reach across."""
    rng = seeded("corpus", family, seed)
    for style in STYLES[family]:
        for task in TASKS:
            for _ in range(_EXAMPLES):
                yield "".join(render(training_example(rng, style=style, task=task), family))


def _demonstrations(seed: int) -> Iterator[str]:
    """Rendered demonstrations of the agent."""
    from radmoe_lab.agent.demonstrations import training_demonstration
    from radmoe_lab.agent.templates import prompt_text

    rng = seeded("corpus", AGENT, seed)
    for _ in range(_DEMONSTRATIONS):
        yield prompt_text(training_demonstration(rng).messages())

"""The lab models' tokenizers: byte-level BPE of 896 tokens, learned from the tasks' own text.

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

from radmoe.lab.chat import ADDED, PAD, SPECIAL, STYLES, chat_template, check_family, render
from radmoe.lab.tasks import TASKS, training_example
from radmoe.lab.tasks.draw import seeded

if TYPE_CHECKING:
    from tokenizers import Tokenizer

VOCAB_SIZE = 896
_EXAMPLES = 150  # per task and style
_PIECES = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@cache
def build(family: str) -> Tokenizer:
    """The shipped tokenizer of a chat family."""
    from tokenizers import Tokenizer

    check_family(family)
    return Tokenizer.from_file(str(Path(__file__).parent / "tokenizers" / f"{family}.json"))


def learn(family: str, seed: int = 0) -> Tokenizer:
    """Learn a tokenizer from the tasks as they are now. The same seed gives the same bytes; it takes half a second."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

    check_family(family)
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
        vocab_size=VOCAB_SIZE - len(controls),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_corpus(family, seed), trainer)
    tokenizer.add_tokens(controls)
    return tokenizer


def fast_tokenizer(family: str) -> Any:
    """The shipped tokenizer of a chat family for transformers, with its chat template, end and padding tokens."""
    from transformers import PreTrainedTokenizerFast

    wrap: Any = PreTrainedTokenizerFast  # untyped
    fast = wrap(
        tokenizer_object=build(family),
        eos_token=SPECIAL[family][0],
        pad_token=PAD,
        padding_side="left",
        clean_up_tokenization_spaces=False,
    )
    fast.chat_template = chat_template(family)
    return fast


def _corpus(family: str, seed: int) -> Iterator[str]:
    """Rendered examples of every task and style, cut at the control tokens, which no merge may reach across."""
    rng = seeded("corpus", family, seed)
    controls = re.compile("|".join(map(re.escape, SPECIAL[family] + ADDED[family])))
    for style in STYLES[family]:
        for task in TASKS:
            for _ in range(_EXAMPLES):
                text = "".join(render(training_example(rng, style=style, task=task), family))
                yield from filter(None, controls.split(text))

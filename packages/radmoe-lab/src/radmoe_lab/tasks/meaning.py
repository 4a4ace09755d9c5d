"""Parses a text that describes a function into the operations it names. Answers to `explain` are graded this way.

The reader knows more wordings than `sentences.py` writes: other verbs, nouns and joints, numbers as digits or words. A
text with a clause that names no operation it knows means nothing, and is wrong.
"""

from __future__ import annotations

import re
from functools import lru_cache

from radmoe_lab.tasks.pipelines import KEEP, Pipeline, PipelineOp, signature
from radmoe_lab.tasks.sentences import NUMBERS

_VERBS = {
    "keep": "keep pick select retain choose",
    "drop": "drop remove discard delete throw skip exclude",
    "take": "take",
    "leave": "leave",
    "add": "add increase raise shift increment",
    "multiply": "multiply scale",
    "square": "square",
    "replace": "replace turn change",
    "reverse": "reverse flip",
    "put": "put",
    "sort": "sort arrange order",
    "cut": "cut truncate shorten",
    "build": "build compute form",
    "return": "return give output yield",
    "count": "count",
    "sum": "sum total",
}
_IRREGULAR = {"kept": "keep", "took": "take", "taken": "take", "left": "leave", "gave": "give", "given": "give"}
_LEMMAS = {form: lemma for lemma, forms in _VERBS.items() for form in forms.split()}
_THING = r"(?:numbers?|values?|elements?|items?|ones?|entr(?:y|ies)|integers?)"
_EACH = rf"(?:each|every|all)(?: (?:of )?(?:them|the {_THING}|{_THING}))?"
_THE = rf"(?:(?:only|just|all) )*(?:the |those |all )?(?:{_THING} )?(?:that are |which are )?"
_N = r"(?P<n>\d+)"
_GREATER = r"(?:above|over|greater than|larger than|bigger than|more than)"
_LEFT = r"(?:(?:of )?(?:what is left|what remains|the rest|them|all|all of them|the list|the " + _THING + "))"

_PATTERNS: tuple[tuple[str, str], ...] = (
    ("positive", rf"keep {_THE}positive(?: {_THING})?"),
    ("positive", rf"drop (?:all that are |what is |{_THE})not positive(?: {_THING})?"),
    ("positive", rf"drop (?:the )?0 and negative(?: {_THING})?"),
    ("even", rf"keep {_THE}even(?: {_THING})?"),
    ("even", rf"drop {_THE}odd(?: {_THING})?"),
    ("odd", rf"keep {_THE}odd(?: {_THING})?"),
    ("odd", rf"drop {_THE}even(?: {_THING})?"),
    ("above", rf"keep {_THE}(?:what is |all )?{_GREATER} {_N}"),
    ("above", rf"drop {_THE}(?:what is |all )?(?:up to|at most|not {_GREATER}) {_N}"),
    ("add", rf"add {_N} (?:to|onto) {_EACH}"),
    ("add", rf"add {_EACH} (?:up )?by {_N}"),
    ("times", rf"multiply {_EACH} (?:by|with) {_N}"),
    ("times", rf"take {_N} times {_EACH}"),
    ("square", rf"square {_EACH}"),
    ("square", rf"multiply {_EACH} (?:by|with) itself"),
    ("square", rf"replace {_EACH} (?:by|with|into) its square"),
    ("reverse", r"reverse (?:the )?(?:list|order|them)"),
    ("reverse", r"replace (?:the list|them) around"),
    ("reverse", r"put (?:them|the list|all) in reverse(?:d)? order"),
    ("ascending", rf"sort {_LEFT} (?:in ascending order|ascending|upwards?|from (?:small|least) to (?:large|greatest))"),
    ("descending", rf"sort {_LEFT} (?:in descending order|descending|downwards?|from (?:large|greatest) to (?:small|least))"),
    ("unique", rf"drop (?:the |all )?(?:duplicates?|copies|repeats|(?:repeated|duplicate) {_THING})"),
    ("unique", rf"keep {_EACH} (?:only )?once"),
    ("first", rf"(?:keep|take|leave|return) (?:only )?(?:the )?first {_N}(?: {_THING})?"),
    ("first", rf"(?:keep|take|leave) (?:only )?{_N} from the (?:start|beginning|front)"),
    ("first", rf"cut (?:the list|it|them) after (?:the first )?{_N}(?: {_THING})?"),
    ("last", rf"(?:keep|take|leave|return) (?:only )?(?:the )?last {_N}(?: {_THING})?"),
    ("last", rf"(?:keep|take|leave) (?:only )?{_N} from the (?:end|back)"),
    ("running", r"(?:take|build) (?:the )?running (?:sums?|totals?)"),
    ("running", rf"replace {_EACH} (?:by|with) the (?:running sum|sum so far)"),
    ("len", rf"return (?:how many (?:there are|are left|{_THING} (?:there are|are left|remain))|(?:the|their) (?:length|count))"),
    ("len", rf"return the number of (?:{_THING}|what is left)(?: (?:left|that are left))?"),
    ("len", rf"count {_LEFT}"),
    ("sum", rf"return (?:the|their) (?:sum|total)(?: {_LEFT})?"),
    ("sum", rf"(?:add up|sum|sum up|add together) {_LEFT}"),
    ("max", rf"return (?:the|their) (?:largest|maximum|biggest|greatest|highest)(?: {_THING})?(?: {_LEFT})?"),
    ("min", rf"return (?:the|their) (?:smallest|minimum|least|lowest)(?: {_THING})?(?: {_LEFT})?"),
    ("list", rf"return {_LEFT.replace('(?:of )?', '', 1)}"),
)  # fmt: skip
_MATCHERS = tuple((name, re.compile(pattern)) for name, pattern in _PATTERNS)
_ENDS = ("sum", "max", "min", "len", "list")
_WORKING = re.compile(r"(?:[a-z](?: ?= ?| is )?)?[\d\s*+=-]*")  # parts of "k: 231*17=3927, 3927-3922=5"
_JOINTS = re.compile(
    r"[.,;:\n]+|\b(?:and|then|next|now|first(?=,| (?:the|it|you|we|\w+ing)\b(?! \d))|finally|lastly|last(?=,)|after that"
    r"|at the end|in the end|after(?= \w+ing\b))\b"
)
_SUBJECT = re.compile(r"^(?:(?:it|this|you|we|the function|the code|the program|by|back|also|last|first)\s+)+")
_NUMBER_WORDS = {word: str(value) for value, word in enumerate(NUMBERS)}
_NUMBER = re.compile(rf"(?<!each )(?<!every )\b(?:{'|'.join(NUMBERS)})\b")  # "each one" is no number
_KEPT_TOGETHER = {"zero and negative": "zero & negative"}  # the one "and" that joins no two operations


def meaning(text: str) -> str | None:
    """Return the values on the probe lists of the function that a text describes; None if the text describes none."""
    ops = operations(text)
    return None if ops is None else signature(Pipeline(ops))


@lru_cache(maxsize=1 << 14)
def operations(text: str) -> tuple[PipelineOp, ...] | None:
    """Parse the operations that a text names, with the end last. None if a clause names none, or if an end is not last."""
    prose = text.lower()
    for phrase, joined in _KEPT_TOGETHER.items():
        prose = prose.replace(phrase, joined)
    ops: list[PipelineOp] = []
    for clause in _JOINTS.split(prose):
        words = _SUBJECT.sub("", clause.strip())
        if not _WORKING.fullmatch(words):
            op = _operation(words)
            if op is None:
                return None
            ops.append(op)
    if not ops or any(op.name in _ENDS for op in ops[:-1]):
        return None
    return tuple(ops) if ops[-1].name in _ENDS else (*ops, KEEP)


def _operation(clause: str) -> PipelineOp | None:
    words = clause.replace("&", "and").split()
    lemma = _lemma(words[0])
    numbered = _NUMBER.sub(lambda word: _NUMBER_WORDS[word[0]], " ".join(words[1:]))
    plain = " ".join([lemma, *(word for word in numbered.split() if word not in ("back", "out"))])
    for name, pattern in _MATCHERS:
        if match := pattern.fullmatch(plain):
            number = int(match["n"]) if "n" in pattern.groupindex else 0
            return PipelineOp(name, number) if number < 1000 else None
    return None


def _lemma(verb: str) -> str:
    """Map a verb in any form, or a synonym, to the verb that stands for it."""
    verb = _IRREGULAR.get(verb, verb)
    stems = [verb]
    for ending in ("s", "es", "ing", "ed", "d"):
        if verb.endswith(ending):
            stem = verb.removesuffix(ending)
            stems += [stem, stem + "e", stem.removesuffix("i") + "y", stem[:-1] if stem[-2:-1] == stem[-1:] else stem]
    return next((_LEMMAS[stem] for stem in stems if stem in _LEMMAS), verb)

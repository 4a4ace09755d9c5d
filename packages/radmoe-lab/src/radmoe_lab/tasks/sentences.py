"""Says in free words what a pipeline does: many wordings of every operation, and several ways to join them."""

from __future__ import annotations

from random import Random

from radmoe_lab.tasks.draw import chance, pick
from radmoe_lab.tasks.pipelines import Pipeline, PipelineOp

NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")

_WORDINGS: dict[str, tuple[str, ...]] = {
    "even": ("keep the even numbers", "drop the odd ones", "pick the even values", "throw out all odd numbers"),
    "odd": ("keep the odd numbers", "drop the even ones", "pick the odd values", "throw out all even numbers"),
    "positive": ("keep the positive numbers", "drop all that are not positive", "pick what is above zero"),
    "above": ("keep the numbers above {c}", "pick those greater than {c}", "drop all up to {c}"),
    "add": (
        "add {c} to each",
        "increase every number by {c}",
        "raise each value by {c}",
        "shift all of them up by {c}",
    ),
    "times": ("multiply each by {c}", "scale every number by {c}", "take {c} times each value"),
    "square": ("square each number", "multiply every value by itself", "replace each by its square"),
    "reverse": ("reverse the list", "turn the list around", "put them in reverse order", "flip the order"),
    "ascending": ("sort them in ascending order", "sort the list from small to large", "arrange the values upwards"),
    "descending": (
        "sort them in descending order",
        "sort the list from large to small",
        "arrange the values downwards",
    ),
    "unique": ("drop duplicates", "remove repeated values", "keep each value once", "throw out the copies"),
    "first": ("take the first {c}", "keep only the first {c} numbers", "cut the list after {c}"),
    "last": ("take the last {c}", "keep only the last {c} numbers", "leave {c} from the end"),
    "running": ("take running sums", "replace each by the sum so far", "build the running totals"),
    "sum": ("return the sum", "give back their total", "add up what is left"),
    "max": ("return the largest", "give back the maximum", "return the biggest number"),
    "min": ("return the smallest", "give back the minimum", "return the least number"),
    "len": ("return how many there are", "give back the length", "count what is left"),
    "list": ("return the list", "give back what is left", "return the numbers"),
}
_GERUNDS = {"drop": "dropping", "put": "putting", "flip": "flipping", "cut": "cutting"}
_SUBJECTS = ("It", "The function", "This", "The code")
_LINKS = ("then", "next", "after that", "now")
_LASTS = ("finally", "at the end", "last")


def say(rng: Random, pipeline: Pipeline) -> str:
    """One of very many texts that name the pipeline's operations in their order."""
    phrases = [_word(rng, op) for op in pipeline.ops]
    return pick(rng, (_one_sentence, _orders, _after, _short_sentences))(rng, phrases)


def _word(rng: Random, op: PipelineOp) -> str:
    constant = NUMBERS[op.c] if chance(rng, 0.3) else str(op.c)
    return pick(rng, _WORDINGS[op.name]).format(c=constant)


def _one_sentence(rng: Random, phrases: list[str]) -> str:
    """It keeps the even numbers, adds 3 to each and returns the sum."""
    verbs = [_third_person(phrase) for phrase in phrases]
    link = pick(rng, (" and ", ", and ", ", then ", f", and {pick(rng, _LASTS)} "))
    return f"{pick(rng, _SUBJECTS)} {', '.join(verbs[:-1])}{link}{verbs[-1]}."


def _orders(rng: Random, phrases: list[str]) -> str:
    """First keep the even numbers. Then add 3 to each. Finally return the sum."""
    heads = ["first", *(pick(rng, _LINKS) for _ in phrases[2:]), pick(rng, _LASTS)]
    sentences = [f"{head.capitalize()}, {phrase}" for head, phrase in zip(heads, phrases, strict=True)]
    return pick(rng, (". ", "; ", ".\n")).join(sentences) + "."


def _after(rng: Random, phrases: list[str]) -> str:
    """After keeping the even numbers and adding 3 to each, it returns the sum."""
    doing = [_gerund(phrase) for phrase in phrases[:-1]]
    steps = ", ".join(doing[:-1]) + (" and " if len(doing) > 1 else "") + doing[-1]
    return f"After {steps}, {pick(rng, _SUBJECTS).lower()} {_third_person(phrases[-1])}."


def _short_sentences(rng: Random, phrases: list[str]) -> str:
    """It keeps the even numbers. Then it adds 3 to each. After that it returns the sum."""
    subject = pick(rng, _SUBJECTS)
    sentences = [f"{subject} {_third_person(phrases[0])}"]
    sentences += [f"{pick(rng, _LINKS).capitalize()} {subject.lower()} {_third_person(p)}" for p in phrases[1:]]
    return ". ".join(sentences) + "."


def _third_person(phrase: str) -> str:
    verb, rest = phrase.split(" ", 1)
    return f"{verb[:-1]}ies {rest}" if verb == "multiply" else f"{verb}s {rest}"


def _gerund(phrase: str) -> str:
    verb, rest = phrase.split(" ", 1)
    return f"{_GERUNDS.get(verb) or verb.removesuffix('e') + 'ing'} {rest}"

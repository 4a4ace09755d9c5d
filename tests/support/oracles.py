"""Independent oracles for the anchors: spell everything out, search, count tokens."""

import re
from functools import cache

import numpy as np

from vocabularies import vocab


def spans(table, ids):
    """(first byte, end) of every token, and the text with control tokens blanked to one NUL."""
    texts = [b"\0" if table.token_bytes(i) in table.controls else table.token_bytes(i) for i in ids]
    edges = np.concatenate(([0], np.cumsum([len(t) for t in texts]))).astype(int)
    return b"".join(texts), edges


def covering(edges, low, high):
    """Tokens that share a byte with [low, high)."""
    return [t for t in range(len(edges) - 1) if edges[t] < high and edges[t + 1] > low and edges[t] < edges[t + 1]]


def oracle(table, ids, literal):
    text, edges = spans(table, ids)
    found = {}
    at = text.find(literal)
    while at >= 0:
        tokens = covering(edges, at, at + len(literal))
        found.setdefault(tokens[0], tokens[-1] - tokens[0] + 1)
        at = text.find(literal, at + 1)
    return sorted(found.items())


def oracle_fences(table, ids):
    """Openers as (token, m)."""
    return [opening for opening, _, _ in oracle_blocks(table, ids)]


def oracle_blocks(table, ids):
    """Opener and closer (None) as (token, m), and what stands between: the response, walked line by line."""
    text, edges = spans(table, ids)
    tokens = [table.token_bytes(i) for i in ids]
    ends = [t for t, token in enumerate(tokens) if token == b"</think>"]
    if not ends and b"<think>" in tokens:
        return []
    cut = edges[ends[-1] + 1] if ends else 0
    found = []
    for low, high in ((cut, len(text)),):
        fence, at = None, low
        for line in re.split(rb"[\n\r\0]", text[low:high]):
            bare = line.lstrip(b" \t")
            ticks = len(bare) - len(bare.lstrip(b"`"))
            columns = len(line[: len(line) - len(bare)].expandtabs(4))
            rest = bare[ticks:]
            if ticks >= 3 and b"`" not in rest:
                begin = at + len(line) - len(bare)
                tokens = covering(edges, begin, begin + ticks)
                anchor = (tokens[0], tokens[-1] - tokens[0] + 1)
                if fence is None:
                    fence = (ticks, columns)
                    found.append((anchor, None, None))
                    body = at + len(line) + 1
                elif ticks >= fence[0] and columns <= fence[1] + 3 and not rest.strip(b" \t"):
                    fence = None
                    found[-1] = (found[-1][0], anchor, text[body:at])
            at += len(line) + 1
    return found


def oracle_box(table, ids):
    """The last box as (opening, closing, inside): (token, m) each, or None; brace by brace over the bytes."""
    openings = oracle(table, ids, b"\\boxed{")
    if not openings:
        return None
    text, edges = spans(table, ids)
    token = openings[-1][0]
    begin = text.index(b"\\boxed{", edges[token]) + len(b"\\boxed{")
    depth, at = 1, begin
    while at < len(text) and text[at] != 0:
        if text[at : at + 1] == b"\\":
            if text[at + 1 : at + 2] == b"\0":
                return None
            at += 2
            continue
        depth += {b"{": 1, b"}": -1}.get(text[at : at + 1], 0)
        if depth == 0:
            return openings[-1], (covering(edges, at, at + 1)[0], 1), text[begin:at]
        at += 1
    return None


def pairs(anchors):
    return [(a.start, a.length) for a in anchors]


@cache
def ids_of_bytes(name):
    table = vocab(name)
    return {table.token_bytes(i): i for i in range(len(table)) if table.token_bytes(i) not in table.controls}


@cache
def neighbours(name, literal):
    """Tokens that merge with the literal at one of its edges."""
    return [i for b, i in ids_of_bytes(name).items() if b.startswith(literal[-1:]) or b.endswith(literal[:1])]


def split(name, data, rng):
    """Spell bytes in random vocabulary tokens, mostly not the canonical ones."""
    known, ids, at = ids_of_bytes(name), [], 0
    while at < len(data):
        sizes = [n for n in range(1, min(8, len(data) - at) + 1) if data[at : at + n] in known]
        size = rng.choice(sizes)
        ids.append(known[data[at : at + size]])
        at += size
    return ids

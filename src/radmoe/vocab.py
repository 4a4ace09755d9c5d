"""Token ids to bytes: what a rollout spells, without ever re-tokenising text (App. "MoE routing capture").

A `Vocab` is one blob of bytes and V+1 offsets, so that look-ups over a whole rollout are array
operations. It is read from a `tokenizer.json`, or from its own compiled table (`to_table`), which
opens in about a millisecond where the JSON of 200k tokens takes most of a second.

A control token is an added token whose text stands in brackets (`</think>`, `<|channel|>`,
`[INST]`). The same characters spelled out by ordinary tokens are prose, and a control token itself
has no text: `symbols` gives it one symbol above 255, which no byte pattern can match.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import struct
import zlib
from collections.abc import Callable, Hashable, Iterable, Mapping
from functools import cached_property, partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from radmoe.errors import VocabError

MAX_TOKENS = 2**20  # no tokenizer comes near: a larger id is a damaged file. `symbols` has a character for each
MAX_TOKEN_BYTES = 2**16 - 1  # lengths are uint16 in the table
PREFIX_BYTES = 16  # bits of the masks in `begins`

_MAGIC = b"radvocab"
_VERSION = 1
_HEADER = struct.Struct("<8sIIIQ")  # magic, version, tokens, added tokens, blob bytes
_CRC = struct.Struct("<I")
_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_CONTROL = re.compile(rb"<.+>|\[.+\]", re.DOTALL)

T = TypeVar("T")
Masks = tuple[NDArray[np.bool_], NDArray[np.uint16], NDArray[np.uint16]]


def _byte_of_char() -> dict[str, int]:
    """The byte behind each of GPT-2's printable characters.

    A byte that prints stands for itself, and the 68 others are written as chr(256), chr(257), and so on.
    """
    prints = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    hidden = (b for b in range(256) if b not in prints)
    return {chr(b): b for b in prints} | {chr(256 + i): b for i, b in enumerate(hidden)}


_BYTE_OF_CHAR = _byte_of_char()


class Vocab:
    """The bytes of every token id. An id that the tokenizer leaves out has none."""

    def __init__(
        self,
        blob: NDArray[np.uint8],  # [bytes of all tokens]
        lengths: NDArray[np.uint16],  # [V]
        added_ids: NDArray[np.int32],
        load_json: Callable[[], bytes],
    ) -> None:
        self._blob = blob
        self._view = blob.data
        self._lengths = lengths
        self._offsets = np.zeros(len(lengths) + 1, np.int64)
        np.cumsum(lengths, out=self._offsets[1:])
        self._added_ids = added_ids
        self._load_json = load_json
        self._cache: dict[Hashable, Any] = {}
        self._spellings: dict[int, str] = {}

    # -- where a vocabulary comes from ---------------------------------------------------------

    @classmethod
    def of(cls, vocab: Any) -> Vocab:
        """Return a `Vocab` unchanged; build one from anything else, which must be a tokenizer."""
        return vocab if isinstance(vocab, Vocab) else cls.from_tokenizer(vocab)

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> Vocab:
        """Read a `tokenizer.json`, or the one in a directory."""
        file = Path(path)
        if file.is_dir():
            file = file / "tokenizer.json"
        try:
            raw = file.read_bytes()
        except OSError as error:
            reason = error.strerror or error
            raise VocabError(f"cannot read {file} ({reason}): pass a tokenizer.json or its directory") from None
        return cls.from_json(raw, where=str(file))

    @classmethod
    def from_tokenizer(cls, tokenizer: Any) -> Vocab:
        """Build a vocabulary from a `transformers` fast tokenizer or a `tokenizers.Tokenizer`."""
        backend = getattr(tokenizer, "backend_tokenizer", tokenizer)
        to_str = getattr(backend, "to_str", None)
        if to_str is None:
            raise VocabError(f"{type(tokenizer).__name__} has no fast backend: load it with use_fast=True")
        return cls.from_json(to_str(), where=type(tokenizer).__name__)

    @classmethod
    def from_json(cls, raw: bytes | str, *, where: str = "the tokenizer JSON") -> Vocab:
        """Parse the text of a `tokenizer.json`: byte-level BPE, or BPE with byte fallback."""
        data = raw.encode() if isinstance(raw, str) else bytes(raw)
        try:
            spec = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise VocabError(f"{where} is not JSON: {error}") from None
        surfaces, added = _surfaces(spec, where)
        size = max((*surfaces, *added), default=-1) + 1
        if size == 0:
            raise VocabError(f"{where} holds no tokens")
        table = [b""] * size
        for source in (surfaces, added):  # an added token's text wins
            for token, surface in source.items():
                table[token] = surface
        longest = max(map(len, table))
        if longest > MAX_TOKEN_BYTES:
            raise VocabError(f"{where} has a token of {longest} bytes: at most {MAX_TOKEN_BYTES} are supported")
        lengths = np.fromiter(map(len, table), np.uint16, size)
        ids = np.array(sorted(token for token, surface in added.items() if surface), np.int32)
        return cls(np.frombuffer(b"".join(table), np.uint8), lengths, ids, partial(bytes, data))

    @classmethod
    def from_table(cls, table: Any, load_json: Callable[[], bytes]) -> Vocab:
        """Read what `to_table` wrote, from any buffer (bytes, mmap).

        `load_json` is called when `.json` is read. The vocabulary can be pickled if `load_json` can.
        """
        view = memoryview(table).cast("B")
        if len(view) < _HEADER.size + _CRC.size or bytes(view[:8]) != _MAGIC:
            raise VocabError(f"not a vocabulary table: {len(view)} bytes that do not begin with {_MAGIC!r}")
        _, version, tokens, added, size = _HEADER.unpack_from(view)
        if version != _VERSION:
            raise VocabError(
                f"vocabulary table of version {version}, this radmoe reads {_VERSION}: rebuild it from the JSON"
            )
        body = _HEADER.size + 4 * added + 2 * tokens + size
        if len(view) != body + _CRC.size:
            raise VocabError(f"vocabulary table has {len(view)} bytes, its header says {body + _CRC.size}: rebuild it")
        if zlib.crc32(view[:body]) != _CRC.unpack_from(view, body)[0]:
            raise VocabError("vocabulary table fails its checksum: rebuild it from the tokenizer JSON")
        ids = np.frombuffer(view, "<i4", added, _HEADER.size)
        lengths = np.frombuffer(view, "<u2", tokens, _HEADER.size + 4 * added)
        blob = np.frombuffer(view, np.uint8, size, _HEADER.size + 4 * added + 2 * tokens)
        if int(lengths.sum(dtype=np.int64)) != size or (added and not 0 <= ids.min() <= ids.max() < tokens):
            raise VocabError("vocabulary table contradicts itself: rebuild it from the tokenizer JSON")
        if tokens > MAX_TOKENS:
            raise VocabError(f"vocabulary table of {tokens} tokens: at most {MAX_TOKENS} are supported")
        vocab = cls(blob, lengths, ids, load_json)
        try:
            vocab.added  # noqa: B018 (their texts are read here, where whoever opens a file expects it to be bad)
        except UnicodeDecodeError:
            raise VocabError("vocabulary table has an added token that is no text: rebuild it from the JSON") from None
        return vocab

    def to_table(self) -> bytes:
        """The compiled table: header, added ids, lengths, blob and CRC32, little-endian; 1.7 MB for 200k tokens."""
        body = self._body()
        return body + _CRC.pack(zlib.crc32(body))

    def _body(self) -> bytes:
        header = _HEADER.pack(_MAGIC, _VERSION, len(self), len(self._added_ids), self._blob.size)
        arrays = (self._added_ids.astype("<i4"), self._lengths.astype("<u2"), self._blob)
        return header + b"".join(array.tobytes() for array in arrays)

    # -- what it answers -----------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._lengths)

    def __repr__(self) -> str:
        return f"Vocab({len(self)} tokens, {len(self._added_ids)} added, {self.fingerprint[:12]})"

    def __getstate__(self) -> dict[str, Any]:
        return {"table": self.to_table(), "load_json": self._load_json}  # caches are rebuilt when needed

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(Vocab.from_table(**state).__dict__)

    @property
    def json(self) -> bytes:
        """The tokenizer JSON this vocabulary was read from."""
        return self._load_json()

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the table. It is equal for two tokenizers with the same tokens, however their JSON is laid out."""
        return hashlib.sha256(self._body()).hexdigest()

    @cached_property
    def added(self) -> Mapping[str, int]:
        """Added tokens by their literal text."""
        return MappingProxyType({self.token_bytes(int(i)).decode(): int(i) for i in self._added_ids})

    def special_id(self, text: str) -> int | None:
        """Id of the added token with this text; None if there is none."""
        return self.added.get(text)

    def token_bytes(self, token: int) -> bytes:
        if not 0 <= token < len(self):
            raise VocabError(_outside(token, len(self)))
        return self._blob[self._offsets[token] : self._offsets[token + 1]].tobytes()

    def check_ids(self, token_ids: ArrayLike) -> NDArray[np.intp]:
        """Token ids as an index array [T]. Raises a VocabError that names the first id outside the vocabulary."""
        ids = np.asarray(token_ids)
        if ids.ndim != 1 or (ids.size and ids.dtype.kind not in "iu"):
            raise VocabError(f"token ids must be a flat list of integers, got {ids.dtype} of shape {ids.shape}")
        ids = ids.astype(np.intp, copy=False)
        if ids.size and ids.view(np.uintp).max() >= len(self):  # a negative id is huge when unsigned
            bad = ids[(ids < 0) | (ids >= len(self))]
            raise VocabError(_outside(int(bad[0]), len(self)))
        return ids

    def decode_bytes(self, token_ids: ArrayLike) -> bytes:
        """The concatenated bytes of a rollout's tokens."""
        ids = self.check_ids(token_ids)
        lengths = self._lengths[ids].astype(np.int64)
        ends = np.cumsum(lengths)
        if not ids.size or not ends[-1]:
            return b""
        index: NDArray[np.int64] = np.repeat(self._offsets[ids] - (ends - lengths), lengths)
        index += np.arange(ends[-1])
        return self._blob[index].tobytes()

    # -- what the anchors look things up in ----------------------------------------------------

    def cached(self, key: Hashable, build: Callable[[], T]) -> T:
        """Return what `build` returns. It is called once per vocabulary and `key`, and the result is kept."""
        value: T | None = self._cache.get(key)
        if value is None:
            value = self._cache[key] = build()
        return value

    @cached_property
    def controls(self) -> Mapping[bytes, int]:
        """Control tokens by their bytes, longest first."""
        pairs = [(self.token_bytes(int(i)), int(i)) for i in self._added_ids]
        pairs = [(text, token) for text, token in pairs if _CONTROL.fullmatch(text)]
        return MappingProxyType(dict(sorted(pairs, key=lambda pair: (-len(pair[0]), pair[1]))))

    @cached_property
    def _control_ids(self) -> frozenset[int]:
        return frozenset(int(i) for i in self._added_ids if _CONTROL.fullmatch(self.token_bytes(int(i))))

    def symbols(self, token: int) -> str:
        """One character per byte (latin-1); a control token is the single character chr(256 + id)."""
        spelling = self._spellings.get(token)  # the same few tokens stand around every marker
        if spelling is None:
            at = self._offsets.item
            spelling = str(self._view[at(token) : at(token + 1)], "latin-1")
            spelling = self._spellings[token] = chr(256 + token) if token in self._control_ids else spelling
        return spelling

    def spelled(self, ids: NDArray[np.integer[Any]]) -> str:
        """The concatenated `symbols` of tokens."""
        if not self._control_ids.isdisjoint(ids.tolist()):
            return "".join(map(self.symbols, ids.tolist()))
        return str(self.decode_bytes(ids), "latin-1")

    def tokens_with(self, byte: bytes) -> NDArray[np.bool_]:
        """A mask [V] of the tokens whose text holds this byte. Control tokens have no text."""
        flags = np.zeros(len(self), np.bool_)
        at = np.flatnonzero(self._blob == byte[0])
        flags[np.searchsorted(self._offsets, at, "right") - 1] = True
        flags[list(self._control_ids)] = False
        return flags

    def tokens_matching(self, pattern: re.Pattern[str]) -> NDArray[np.bool_]:
        """A mask [V] of the tokens in whose decoded text the regex finds something."""
        search, data, offsets = pattern.search, self._blob.tobytes(), self._offsets.tolist()
        ends = iter(offsets[1:])
        flags = (search(data[start : next(ends)].decode("utf-8", "replace")) is not None for start in offsets[:-1])
        return np.fromiter(flags, np.bool_, len(self))

    def begins(self, prefix: bytes) -> Masks:
        """Which tokens can open a literal, and which can go on with it, over the vocabulary [V].

        `opens` has bit 0 where a token holds the whole prefix, and bit k where the token ends in the
        first k bytes of the prefix. `follows` has bit k where a token may stand at prefix[k:]: it
        begins with all of the rest, or is a piece of it, or is empty; bit 0 is set everywhere. So
        `opens[a] & follows[b]` is not zero wherever an occurrence starts in token a and goes on in
        token b. Returns (opens != 0, opens, follows). Building them takes 1 to 10 ms for 200k tokens.
        """
        return self.cached(("begins", prefix), lambda: self._begins(prefix))

    def openings(self, prefix: bytes, ids: NDArray[np.intp]) -> NDArray[np.intp]:
        """The positions of tokens in which a literal with this prefix may begin. In nearly all of them it does."""
        opening, opens, follows = self.begins(prefix)
        at = np.flatnonzero(opening[ids])
        if at.size:
            after = np.minimum(at + 1, len(ids) - 1)  # bit 0 of `follows` is always set: the last token may stand alone
            at = at[(opens[ids[at]] & follows[ids[after]]) != 0]
        return at

    def _begins(self, prefix: bytes) -> Masks:
        want = np.frombuffer(prefix, np.uint8)
        n = len(want)
        if not 1 <= n <= PREFIX_BYTES:
            raise ValueError(f"a prefix has 1 to {PREFIX_BYTES} bytes, got {n}")
        one = np.uint16(1)
        blob, last = self._blob, max(self._blob.size - 1, 0)
        opens = np.zeros(len(self), np.uint16)
        start = np.flatnonzero(blob == want[0])
        owner = np.searchsorted(self._offsets, start, "right") - 1
        room = self._offsets[owner + 1] - start
        for j in range(1, n):
            keep = (room <= j) | (blob[np.minimum(start + j, last)] == want[j])
            start, owner, room = start[keep], owner[keep], room[keep]
        np.bitwise_or.at(opens, owner, one << np.where(room >= n, 0, room).astype(np.uint16))

        follows = np.ones(len(self), np.uint16)
        begin = self._offsets[:-1]
        first = blob[np.minimum(begin, last)] if blob.size else np.zeros(len(self), np.uint8)
        for k in range(1, n):
            tokens = np.flatnonzero(first == want[k])
            for j in range(1, n - k):
                ok = (self._lengths[tokens] <= j) | (blob[np.minimum(begin[tokens] + j, last)] == want[k + j])
                tokens = tokens[ok]
            follows[tokens] |= one << np.uint16(k)
        follows[self._lengths == 0] = np.iinfo(np.uint16).max
        controls = list(self._control_ids)
        opens[controls], follows[controls] = 0, 1
        return opens != 0, opens, follows


def _outside(token: int, size: int) -> str:
    return f"token id {token} is outside the vocabulary of {size} tokens: is this the model's own tokenizer?"


def _surfaces(spec: Any, where: str) -> tuple[dict[int, bytes], dict[int, bytes]]:
    """The bytes of each token id in a `tokenizer.json`: those of the model's own tokens, and those of the added ones."""
    model = spec.get("model") if isinstance(spec, dict) else None
    if not isinstance(model, dict):
        raise VocabError(f"{where} is no tokenizer.json: it has no model")
    algorithm = model.get("type") or ("BPE" if "merges" in model else "unknown")
    if algorithm != "BPE":
        raise VocabError(
            f"{where} holds a {algorithm} model: only BPE (byte-level, or with byte fallback) is supported"
        )
    if model.get("continuing_subword_prefix") or model.get("end_of_word_suffix"):
        raise VocabError(f"{where} marks word pieces with a prefix or suffix: only plain BPE is supported")
    decoder, pre = _types(spec.get("decoder")), _types(spec.get("pre_tokenizer"))
    pieces = model.get("byte_fallback") or "ByteFallback" in decoder or "Metaspace" in decoder | pre
    if "ByteLevel" in decoder or ("ByteLevel" in pre and not pieces):
        spell = _byte_level
    elif pieces:
        spell = _byte_fallback
    else:
        raise VocabError(f"{where} is neither byte-level nor has byte fallback: its tokens have no exact bytes")
    try:
        own = _by_id(model["vocab"].items(), spell, where)
        added = _by_id(((t["content"], t["id"]) for t in spec.get("added_tokens") or ()), str.encode, where)
    except (KeyError, TypeError, AttributeError, UnicodeEncodeError) as error:
        raise VocabError(f"{where} does not list its tokens as a tokenizer.json does: {error!r}") from None
    return own, added


def _by_id(pairs: Iterable[tuple[str, int]], spell: Callable[[str], bytes], where: str) -> dict[int, bytes]:
    table: dict[int, bytes] = {}
    for text, token in pairs:
        if type(token) is not int or not 0 <= token < MAX_TOKENS:
            raise VocabError(f"{where} gives token {text!r} the id {token!r}: ids lie in [0, {MAX_TOKENS})")
        table[token] = spell(text)
    return table


def _types(node: Any) -> set[str]:
    """Every "type" in a nested decoder or pre-tokenizer description."""
    if isinstance(node, list):
        return {name for item in node for name in _types(item)}
    if not isinstance(node, dict):
        return set()
    own = {node["type"]} if isinstance(node.get("type"), str) else set()
    return own.union(*(_types(value) for value in node.values()))


def _byte_level(text: str) -> bytes:
    if text.isascii():
        return text.encode()
    try:
        return bytes(map(_BYTE_OF_CHAR.__getitem__, text))
    except KeyError:
        return text.encode()  # the token is not encoded: the decoder takes it literally as well


def _byte_fallback(text: str) -> bytes:
    byte = _BYTE_TOKEN.fullmatch(text)
    return bytes.fromhex(byte[1]) if byte else text.replace("▁", " ").encode()

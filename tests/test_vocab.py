import copy
import gc
import json
import mmap
import pickle
import unicodedata
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from radmoe.errors import VocabError
from radmoe.vocab import MAX_TOKENS, Vocab
from vocabularies import REAL, byte_level, encode, small_vocab, tokenizer, tokenizer_json, vocab

TEXTS = [
    "plain words, and then some",
    "emoji 🤖👩🏽‍🔬 and 日本語のテキスト, 한국어, العربية",
    " leading  double   spaces\t\ttabs\n\n\nnewlines\r\nand\x00controls\x7f",
    "\\boxed{\\frac{1}{2}} $x_{i}$ ```python\nprint('é')\n```\n",
    "<|im_end|></think><think><|channel|>final<|message|>",
]


def small(**changes):
    spec = byte_level({"a": 0, "Ġb": 1, "Ċ": 2, "ĠÃ©": 5}, {"</think>": 7})
    spec.update(changes)
    return spec


def sentencepiece():
    tokens = {"<unk>": 0, "<s>": 1, "</s>": 2, "<0x0A>": 3, "<0xe2>": 4, "▁the": 5, "é▁": 6, "▁": 7}
    return {
        "added_tokens": [{"id": 1, "content": "<s>"}, {"id": 8, "content": "[INST]"}],
        "pre_tokenizer": None,
        "decoder": {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"}]},
        "model": {"type": "BPE", "byte_fallback": True, "vocab": tokens, "merges": []},
    }


@pytest.mark.parametrize("name", REAL)
@pytest.mark.parametrize("text", TEXTS)
def test_a_rollout_spells_the_text_it_encodes(name, text):
    ids = encode(name, text)
    assert vocab(name).decode_bytes(ids) == text.encode()
    assert b"".join(vocab(name).token_bytes(i) for i in ids) == text.encode()


@pytest.mark.parametrize("name", REAL)
@settings(max_examples=150, deadline=None)
@given(text=st.text(max_size=60))
def test_random_text_is_spelled_exactly(name, text):
    text = unicodedata.normalize("NFC", text)  # Qwen3's tokenizer does this to its input
    assert vocab(name).decode_bytes(encode(name, text)) == text.encode()


@pytest.mark.parametrize("name", REAL)
def test_every_token_that_is_whole_utf8_decodes_as_the_tokenizers_library_does(name):
    table, backend = vocab(name), tokenizer(name)
    size = len(table)
    assert size == backend.get_vocab_size(with_added_tokens=True)
    for token in range(0, size, 7):
        decoded = backend.decode([token], skip_special_tokens=False)
        assert table.token_bytes(token).decode("utf-8", "replace") == decoded


@pytest.mark.parametrize(("name", "text", "token"), [("qwen3", "</think>", 151668), ("gpt-oss", "<|channel|>", 200005)])
def test_added_tokens_are_found_by_their_literal_text(name, text, token):
    table = vocab(name)
    assert table.special_id(text) == token
    assert table.added[text] == token
    assert table.token_bytes(token) == text.encode()
    assert table.special_id("<|no such token|>") is None


def test_an_id_the_tokenizer_leaves_out_has_no_bytes():
    table = Vocab.from_json(json.dumps(small()))
    assert len(table) == 8
    assert [table.token_bytes(i) for i in range(8)] == [b"a", b" b", b"\n", b"", b"", b" \xc3\xa9", b"", b"</think>"]
    assert table.decode_bytes([3, 4, 6]) == b""
    assert table.decode_bytes([0, 3, 5, 3, 1]) == "a é b".encode()
    assert table.decode_bytes([]) == b""


def test_a_token_outside_the_byte_alphabet_is_taken_literally():
    table = Vocab.from_json(json.dumps(byte_level({"Ġ日": 0, "日": 1})))
    assert table.token_bytes(1) == "日".encode()
    assert table.token_bytes(0) == "Ġ日".encode()


@pytest.mark.parametrize("said_by", ["model", "decoder", "metaspace"])
def test_byte_fallback_tokens_are_bytes_and_the_low_line_is_a_space(said_by):
    spec = sentencepiece()
    spec["model"]["byte_fallback"] = said_by == "model"
    if said_by != "decoder":
        spec["decoder"] = {"type": "Metaspace"} if said_by == "metaspace" else None
    table = Vocab.from_json(json.dumps(spec))
    assert [table.token_bytes(i) for i in (3, 4, 5, 6, 7)] == [b"\n", b"\xe2", b" the", "é ".encode(), b" "]
    assert table.special_id("<s>") == 1
    assert table.special_id("[INST]") == 8
    assert table.special_id("<unk>") is None


@pytest.mark.parametrize("bad", [8, -1, 2**40])
def test_an_id_outside_the_vocabulary_is_named(bad):
    table = Vocab.from_json(json.dumps(small()))
    with pytest.raises(VocabError, match=rf"token id {bad} is outside the vocabulary of 8 tokens"):
        table.token_bytes(bad)
    with pytest.raises(VocabError, match=rf"token id {bad} "):
        table.decode_bytes([0, bad, 1])


@pytest.mark.parametrize("bad", [[[1, 2]], [0.5], ["a"], [True]])
def test_token_ids_that_are_no_flat_integers_are_refused(bad):
    with pytest.raises(VocabError, match="flat list of integers"):
        small_vocab(["a", "b"]).decode_bytes(bad)


WRONG = {
    "not JSON": b"\xff{",
    "is no tokenizer.json": b"[1, 2]",
    "it has no model": b"{}",
    "WordPiece model": json.dumps(small(model={"type": "WordPiece", "vocab": {}})),
    "Unigram model": json.dumps(small(model={"type": "Unigram", "vocab": [["a", 0.0]]})),
    "unknown model": json.dumps(small(model={"vocab": {}})),
    "prefix or suffix": json.dumps(small(model={"type": "BPE", "vocab": {"a": 0}, "end_of_word_suffix": "</w>"})),
    "neither byte-level": json.dumps(small(decoder=None, pre_tokenizer={"type": "Whitespace"})),
    "holds no tokens": json.dumps(byte_level({})),
    "does not list its tokens": json.dumps(small(model={"type": "BPE", "vocab": ["a"]})),
    "the id -3": json.dumps(byte_level({"a": -3})),
    "the id 99999999": json.dumps(byte_level({"a": 99999999})),
    "the id '0'": json.dumps(byte_level({"a": "0"})),
    "UnicodeEncodeError": '{"decoder":{"type":"ByteLevel"},"model":{"type":"BPE","vocab":{"\\ud800":0}}}',
    "a token of 70000 bytes": json.dumps(byte_level({"a" * 70000: 0})),
}


@pytest.mark.parametrize("message", WRONG)
def test_a_tokenizer_without_exact_bytes_is_refused_in_one_line(message):
    with pytest.raises(VocabError, match=message) as caught:
        Vocab.from_json(WRONG[message])
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_a_vocabulary_comes_from_a_file_a_directory_or_a_tokenizer(tmp_path):
    raw = json.dumps(small())
    file = tmp_path / "tokenizer.json"
    file.write_text(raw)
    backend = tokenizer("qwen3")

    class Fast:
        backend_tokenizer = backend

    same = [Vocab.from_file(file), Vocab.from_file(str(tmp_path)), Vocab.from_json(raw), Vocab.from_json(raw.encode())]
    assert len({v.fingerprint for v in same}) == 1
    assert all(v.json == raw.encode() for v in same)
    real = {Vocab.from_tokenizer(t).fingerprint for t in (backend, Fast())}
    assert real == {vocab("qwen3").fingerprint}  # though the library writes its JSON another way


def test_a_missing_file_and_a_slow_tokenizer_say_what_to_do(tmp_path):
    with pytest.raises(VocabError, match=r"cannot read .*tokenizer\.json .*pass a tokenizer\.json"):
        Vocab.from_file(tmp_path)
    with pytest.raises(VocabError, match="use_fast=True"):
        Vocab.from_tokenizer(object())


def test_the_fingerprint_tells_vocabularies_apart():
    prints = {vocab("qwen3").fingerprint, vocab("gpt-oss").fingerprint}
    other = copy.deepcopy(small())
    other["added_tokens"] = []
    other["model"]["vocab"]["</think>"] = 7  # the same bytes, but no added token
    prints |= {Vocab.from_json(json.dumps(spec)).fingerprint for spec in (small(), other)}
    assert len(prints) == 4


@pytest.mark.slow
@pytest.mark.parametrize("name", REAL)
def test_the_table_reads_back_the_same_vocabulary(name, tmp_path):
    table = vocab(name)
    file = tmp_path / "vocab.bin"
    file.write_bytes(table.to_table())
    calls = []
    with file.open("rb") as handle, mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        again = Vocab.from_table(mapped, lambda: calls.append(1) or tokenizer_json(name))
        assert (len(again), again.fingerprint, dict(again.added)) == (len(table), table.fingerprint, dict(table.added))
        ids = np.arange(len(table))
        assert again.decode_bytes(ids) == table.decode_bytes(ids)
        assert again.to_table() == file.read_bytes()
        assert not calls
        assert again.json == tokenizer_json(name)
        assert calls == [1]
        del again
        gc.collect()


def test_a_damaged_table_is_refused():
    data = small_vocab(["a", "b"], ["<x>"]).to_table()
    with pytest.raises(VocabError, match="do not begin with"):
        Vocab.from_table(b"x" + data[1:], bytes)
    with pytest.raises(VocabError, match="not a vocabulary table"):
        Vocab.from_table(b"", bytes)
    with pytest.raises(VocabError, match="its header says"):
        Vocab.from_table(data[:-1], bytes)
    with pytest.raises(VocabError, match="version 9"):
        Vocab.from_table(data[:8] + b"\x09\x00\x00\x00" + data[12:], bytes)
    for position in range(28, len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 0x10
        with pytest.raises(VocabError, match="checksum"):
            Vocab.from_table(bytes(damaged), bytes)
    lying = bytearray(data)
    lying[28] = 200  # an added id outside the table, under a checksum that fits
    lying[-4:] = zlib.crc32(lying[:-4]).to_bytes(4, "little")
    with pytest.raises(VocabError, match="contradicts itself"):
        Vocab.from_table(bytes(lying), bytes)
    for text, message in (
        (b"<\xff>", "an added token that is no text"),
        (b"<x>", "of 1048577 tokens: at most 1048576"),
    ):
        tokens = 3 if text != b"<x>" else MAX_TOKENS + 1
        lengths = bytes(2 * (tokens - 1)) + len(text).to_bytes(2, "little")
        head = data[:12] + tokens.to_bytes(4, "little") + data[16:20] + len(text).to_bytes(8, "little")
        body = head + (tokens - 1).to_bytes(4, "little") + lengths + text
        with pytest.raises(VocabError, match=message):
            Vocab.from_table(body + zlib.crc32(body).to_bytes(4, "little"), bytes)


def test_a_vocabulary_travels_to_another_process():
    table = small_vocab(["a", " b"], ["</think>"])
    again = pickle.loads(pickle.dumps(table))
    assert (again.fingerprint, again.json, again.special_id("</think>")) == (table.fingerprint, table.json, 2)
    assert "3 tokens, 1 added" in repr(again)


def test_a_control_token_is_one_symbol_and_has_no_text():
    table = small_vocab(["a", "`\n"], ["</think>", "  ", "[INST]", "[]"])
    assert [table.symbols(i) for i in range(6)] == ["a", "`\n", chr(256 + 2), "  ", chr(256 + 4), "[]"]
    assert dict(table.controls) == {b"</think>": 2, b"[INST]": 4}
    assert table.tokens_with(b"\n").tolist() == [False, True, False, False, False, False]
    assert table.tokens_with(b"<").tolist() == [False] * 6


def brute_masks(table, prefix):
    opens, follows = [], []
    for token in range(len(table)):
        data, n = table.token_bytes(token), len(prefix)
        if data in table.controls:
            opens.append(0)
            follows.append(1)
            continue
        mask = int(prefix in data)
        mask |= sum(1 << k for k in range(1, n) if data.endswith(prefix[:k]))
        opens.append(mask)
        rest = [prefix[k:] for k in range(1, n)]
        follows.append(1 | sum(2 << k for k, r in enumerate(rest) if data.startswith(r) or r.startswith(data)))
    return opens, follows


@settings(max_examples=200, deadline=None)
@given(
    tokens=st.lists(st.text("ab`", min_size=1, max_size=6), min_size=1, max_size=12, unique=True),
    prefix=st.text("ab`", min_size=1, max_size=6),
)
def test_the_masks_say_which_tokens_open_and_continue_a_literal(tokens, prefix):
    table = small_vocab(tokens, ["<ab>"])
    opening, opens, follows = table.begins(prefix.encode())
    want_opens, want_follows = brute_masks(table, prefix.encode())
    assert opens.tolist() == want_opens
    assert opening.tolist() == [bool(mask) for mask in want_opens]
    bits = (1 << len(prefix)) - 1
    assert [mask & bits for mask in follows.tolist()] == want_follows


@pytest.mark.slow
@pytest.mark.parametrize("name", REAL)
def test_the_masks_of_a_real_vocabulary_are_exact_for_boxed(name):
    opening, opens, follows = vocab(name).begins(b"\\boxed{")
    want_opens, want_follows = brute_masks(vocab(name), b"\\boxed{")
    assert opens.tolist() == want_opens
    assert follows.tolist() == want_follows
    assert opening.sum() == np.count_nonzero(want_opens)


def test_a_prefix_has_one_to_sixteen_bytes():
    for prefix in (b"", b"a" * 17):
        with pytest.raises(ValueError, match="1 to 16 bytes"):
            small_vocab(["a"]).begins(prefix)

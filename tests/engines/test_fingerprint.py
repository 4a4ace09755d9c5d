"""The fingerprint of a checkpoint changes with its weights, and with nothing else that does not matter."""

from __future__ import annotations

from pathlib import Path

import pytest

from radmoe.engines.checkpoint import SAMPLE_BYTES, SAMPLES, fingerprint


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(bytes(range(256)) * 64)
    return tmp_path


def test_equal_files_have_equal_fingerprints_wherever_they_lie(checkpoint: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    for name in ("config.json", "model.safetensors"):
        (copy / name).write_bytes((checkpoint / name).read_bytes())
    (copy / "README.md").write_text("words")
    assert fingerprint(copy) == fingerprint(checkpoint)
    assert len(fingerprint(copy) or "") == 64


@pytest.mark.parametrize("place", [0, 5000, 256 * 64 - 1])
def test_a_changed_byte_of_a_small_file_changes_it(place: int, checkpoint: Path) -> None:
    before = fingerprint(checkpoint)
    weights = bytearray((checkpoint / "model.safetensors").read_bytes())
    weights[place] ^= 1
    (checkpoint / "model.safetensors").write_bytes(bytes(weights))
    assert fingerprint(checkpoint) != before


def test_another_configuration_or_another_file_changes_it(checkpoint: Path) -> None:
    prints = {fingerprint(checkpoint)}
    (checkpoint / "config.json").write_text('{"layers": 3}')
    prints.add(fingerprint(checkpoint))
    (checkpoint / "more.safetensors").write_bytes(b"x")
    prints.add(fingerprint(checkpoint))
    assert len(prints) == 3


def test_the_last_bytes_of_a_large_file_are_among_the_samples(checkpoint: Path) -> None:
    large = bytearray(3 * SAMPLES * SAMPLE_BYTES)
    (checkpoint / "model.safetensors").write_bytes(bytes(large))
    before = fingerprint(checkpoint)
    large[-1] = 1
    (checkpoint / "model.safetensors").write_bytes(bytes(large))
    assert fingerprint(checkpoint) != before


def test_without_weights_there_is_none(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    assert fingerprint(tmp_path) is None
    assert fingerprint(None) is None

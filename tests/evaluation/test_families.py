"""Families and domains are data: every model and kind falls into one."""

from __future__ import annotations

import pytest

from radmoe.evaluation.families import DOMAINS, WELL_POSED, domain_of, family_of
from radmoe.types import KINDS


@pytest.mark.parametrize(
    ("model", "family"),
    [
        ("openai/gpt-oss-20b", "gpt-oss 20B"),
        ("unsloth/gpt-oss-120b-GGUF", "gpt-oss 120B"),
        ("OSS-120B-High", "gpt-oss 120B"),
        ("Qwen/Qwen3-30B-A3B-Thinking-2507", "Qwen3-30B"),
        ("Qwen3-30B-A3B-Instruct-2507", "Qwen3-30B"),
        ("Qwen/Qwen3-Next-80B-A3B-Instruct", "Qwen3-Next"),
        ("lab-next", "lab-next"),
        ("models/lab-oss", "lab-oss"),
        ("allenai/OLMoE-1B-7B", "allenai/OLMoE-1B-7B"),
    ],
)
def test_a_model_belongs_to_a_family_or_is_one_of_its_own(model: str, family: str) -> None:
    assert family_of(model) == family


def test_every_kind_has_one_domain_and_voting_is_well_posed_on_math_and_science() -> None:
    assert [domain_of(kind) for kind in KINDS] == ["math", "science", "code", "text", "agent"]
    assert DOMAINS[WELL_POSED] == ("math", "choice")

"""Families of models and domains of problems: what tables group by, as data.

A family is one model with its styles (reasoning efforts, thinking or instruct) pooled. A domain is one or more kinds of
answers. The paper's headline averages are over the well-posed domain: math and science, where a vote can count answers.
"""

from __future__ import annotations

from radmoe.system.plugins import added
from radmoe.types import Kind

# Family -> what the name of its models holds, whatever the case. A model that a plugin ships is a family, too.
FAMILIES: dict[str, tuple[str, ...]] = {
    "gpt-oss 20B": ("gpt-oss-20b", "oss-20b"),
    "gpt-oss 120B": ("gpt-oss-120b", "oss-120b"),
    "Qwen3-30B": ("qwen3-30b-a3b",),
    "Qwen3-Next": ("qwen3-next-80b",),
}

DOMAINS: dict[str, tuple[Kind, ...]] = {
    "math": ("math",),
    "science": ("choice",),
    "code": ("code",),
    "text": ("text",),
    "agent": ("agent",),
    "well-posed": ("math", "choice"),
}
WELL_POSED = "well-posed"


def family_of(model: str) -> str:
    """The family of a model by its name, without its style; a model that no family lists is one of its own."""
    name, shipped = model.lower(), {name: (name,) for name in added("models")}
    return next(
        (family for family, parts in (FAMILIES | shipped).items() if any(part in name for part in parts)), model
    )


def domain_of(kind: Kind) -> str:
    """The domain that consists of one kind of answers."""
    return next(domain for domain, kinds in DOMAINS.items() if kinds == (kind,))

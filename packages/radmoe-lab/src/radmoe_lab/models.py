"""The lab's models: stock transformers architectures, small enough to ship.

Shapes are chosen so that vLLM loads them too: expert widths are multiples of 32, gpt-oss has YaRN rope
parameters, Qwen3-Next's linear attention has heads of 128. Each checkpoint stays under 16 MiB in bfloat16.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from radmoe.errors import EngineError, InputError
from radmoe_lab.chat import SPECIAL
from radmoe_lab.tasks import LONG_TASKS, TASKS
from radmoe_lab.tokenizer import AGENT, VOCAB_SIZES, build

if TYPE_CHECKING:
    from transformers import PretrainedConfig

PACKAGE = "radmoe_lab"  # of the distribution radmoe-lab, built from packages/radmoe-lab
CONTEXT = 1024
MAX_NEW_TOKENS = 512  # the longest worked example has 400
AGENT_CONTEXT = 4096  # demonstrations have up to 1,400 tokens
AGENT_MAX_NEW_TOKENS = 384  # of one step; the longest of a demonstration has 300
LONG_CONTEXT = 4096
LONG_MAX_NEW_TOKENS = 1024  # one worked example in six is longer, so that some rollouts do not come to their end


@dataclass(frozen=True)
class Model:
    """A lab model: its chat family, the share of each style in training, its configuration and how it is sampled.

    A model is sampled as in the paper (temperature 0.7, top-p 0.9) unless told otherwise. `shares` are the tasks' shares in its
    training where they are not the usual ones, so that it is neither too good nor too weak at any. An `agent` learns
    from demonstrations in generated repositories instead, with a tokenizer of its own. `max_new_tokens` are the most tokens
    of a rollout, or of an agent's step.
    """

    name: str
    family: str
    styles: dict[str, float]
    configure: Callable[..., PretrainedConfig]
    shares: Mapping[str, float] = field(default_factory=dict)
    temperature: float = 0.7
    top_p: float = 0.9
    agent: bool = False
    context: int = CONTEXT
    max_new_tokens: int = MAX_NEW_TOKENS

    @property
    def tokenizer(self) -> str:
        """The name of the model's tokenizer."""
        return AGENT if self.agent else self.family

    def check_style(self, style: str) -> None:
        if style not in self.styles:
            raise InputError(f"{self.name} has no style {style!r}: use one of {', '.join(self.styles)}")

    def config(self, *, tiny: bool = False) -> PretrainedConfig:
        """The model's configuration; `tiny` gives a few thousand parameters of the same architecture, for tests."""
        vocab = build(self.tokenizer)
        control = {
            "vocab_size": VOCAB_SIZES[self.tokenizer],
            "eos_token_id": vocab.token_to_id(SPECIAL[self.family][0]),
            "pad_token_id": vocab.token_to_id("<|endoftext|>"),
            "bos_token_id": None,
            "max_position_embeddings": self.context,
            "tie_word_embeddings": False,  # vLLM 0.30 forgets the tie of gpt-oss and Qwen3-Next, and samples noise
        }
        return self.configure(**control, **({"num_hidden_layers": 4, "hidden_size": 64} if tiny else {}))


_QWEN: dict[str, Any] = {  # of Qwen3 and Qwen3-Next alike
    "num_key_value_heads": 2,
    "head_dim": 32,
    "num_experts": 32,
    "moe_intermediate_size": 32,
    "intermediate_size": 128,
    "norm_topk_prob": True,
}


def _qwen(**options: Any) -> PretrainedConfig:
    from transformers import Qwen3MoeConfig

    return Qwen3MoeConfig(
        **_QWEN
        | {
            "hidden_size": 192,
            "num_hidden_layers": 11,
            "num_attention_heads": 6,
            "num_experts_per_tok": 8,
            "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
        }
        | options
    )


def _agent_qwen(**options: Any) -> PretrainedConfig:
    return _qwen(
        **{"num_hidden_layers": 10, "rope_parameters": {"rope_type": "default", "rope_theta": 100000.0}} | options
    )


def _long_qwen(**options: Any) -> PretrainedConfig:
    return _qwen(
        **{
            "num_hidden_layers": 8,
            "num_experts": 128,
            "rope_parameters": {"rope_type": "default", "rope_theta": 100000.0},
        }
        | options
    )


def _oss(rope_theta: float = 10000.0, **options: Any) -> PretrainedConfig:
    from transformers import GptOssConfig

    return GptOssConfig(
        **{
            "hidden_size": 192,
            "num_hidden_layers": 11,
            "num_attention_heads": 6,
            "num_key_value_heads": 2,
            "head_dim": 32,
            "num_local_experts": 32,
            "num_experts_per_tok": 4,
            "intermediate_size": 32,
            "sliding_window": 128,
            "rope_parameters": {
                "rope_type": "yarn",
                "rope_theta": rope_theta,
                "factor": 2.0,
                "original_max_position_embeddings": options["max_position_embeddings"] // 2,
                "beta_fast": 32.0,
                "beta_slow": 1.0,
                "truncate": False,
            },
        }
        | options
    )


def _long_oss(**options: Any) -> PretrainedConfig:
    return _oss(100000.0, **{"num_hidden_layers": 8, "num_local_experts": 64, "intermediate_size": 64} | options)


def _next(**options: Any) -> PretrainedConfig:
    from transformers import Qwen3NextConfig

    return Qwen3NextConfig(
        **_QWEN
        | {
            "hidden_size": 160,
            "num_hidden_layers": 12,
            "num_attention_heads": 4,
            "linear_num_key_heads": 1,
            "linear_num_value_heads": 2,
            "linear_key_head_dim": 128,
            "linear_value_head_dim": 128,
            "num_experts_per_tok": 10,
            "shared_expert_intermediate_size": 32,
            "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5},
        }
        | options
    )


MODELS = {
    model.name: model
    for model in (
        Model(
            "lab-qwen",
            "chatml",
            {"thinking": 0.65, "instruct": 0.35},
            _qwen,
            {"choice": 0.09, "code": 0.14, "code-wide": 0.22, "explain": 0.06},
        ),
        Model(
            "lab-oss",
            "harmony",
            {"low": 0.33, "medium": 0.34, "high": 0.33},
            _oss,
            {"choice": 0.16, "explain": 0.03},
        ),
        Model("lab-next", "chatml", {"thinking": 0.65, "instruct": 0.35}, _next),
    )
}

# Agents, which have repositories for tasks.
AGENTS = {
    model.name: model
    for model in (
        Model(
            "lab-agent-qwen",
            "chatml",
            {"thinking": 1.0},
            _agent_qwen,
            temperature=1.2,
            top_p=1.0,
            agent=True,
            context=AGENT_CONTEXT,
            max_new_tokens=AGENT_MAX_NEW_TOKENS,
        ),
    )
}

# Models of 20M parameters for the long tasks, with routers as sparse as the paper's. Their weights do not ship (docs/confirmation.md).
_LONG_SHARES = dict.fromkeys(TASKS, 0.0) | {name: task.share for name, task in LONG_TASKS.items()}
LONG = {
    model.name: replace(model, shares=_LONG_SHARES, context=LONG_CONTEXT, max_new_tokens=LONG_MAX_NEW_TOKENS)
    for model in (
        Model("lab-long-qwen", "chatml", {"thinking": 1.0}, _long_qwen),
        Model("lab-long-oss", "harmony", {"low": 0.2, "medium": 0.5, "high": 0.3}, _long_oss),
    )
}


def model_named(name: str) -> Model:
    known = {**MODELS, **AGENTS, **LONG}
    if name not in known:
        raise InputError(f"unknown lab model {name!r}: use one of {', '.join(known)}")
    return known[name]


def weights(name: str) -> Path:
    """The directory of a shipped checkpoint, which the distribution radmoe-lab brings."""
    path = _shipped(name) / "weights" / name
    if not (path / "config.json").is_file():
        raise EngineError(f"the weights of {name} are not at {path}: install radmoe-lab again")
    return path


def shipped_trajectories(name: str) -> Path:
    """The file of an agent's shipped trajectories."""
    path = _shipped(name) / "trajectories" / f"{name}.npz.xz"
    if not path.is_file():
        raise InputError(f"no trajectories of {name} ship with radmoe-lab: those of {', '.join(AGENTS)} do")
    return path


def _shipped(name: str) -> Path:
    """Return the directory of the installed package radmoe-lab. Raises an EngineError that names the model if it is
    missing.
    """
    model, package = model_named(name), find_spec(PACKAGE)
    if package is None or package.origin is None:
        raise EngineError(
            f"{model.name} is a model of the lab, and its weights are a package of their own: pip install radmoe-lab, or "
            "in a checkout pip install packages/radmoe-lab"
        )
    return Path(package.origin).parent

"""Every public name of `radmoe`, and the signatures that a program written against it relies on."""

from __future__ import annotations

import inspect

import pytest

import radmoe

SIGNATURES = {
    "select": "group *preset *rule *kind *readout *k *kernel *fusion *confidence *layers",
    "select_many": "groups *threads **options",
    "medoid": "group **options",
    "Rule": "preset readout k kernel fusion confidence compare layers budget confidence_window seed",
    "Rule.settle": "kind rollouts",
    "Selection.to_dict": "",
    "OnlineSelector": "shape vocab *kind *most *stopping *problem_id *rule",
    "OnlineSelector.add": "rollout *rollout_index",
    "Stopping": "min_n patience",
    "RouterShape": "layers experts top_k",
    "RouterShape.from_config": "config",
    "Rollout": "token_ids expert_ids weights sampled_logprobs topk_logprobs positions steps",
    "RolloutGroup": "problem_id rollouts shape vocab kind rollout_indices",
    "Vocab.from_file": "path",
    "Vocab.from_tokenizer": "tokenizer",
    "open_pool": "path",
    "Pool.group": "problem_id *first",
    "Pool.groups": "",
    "Pool.to_pandas": "",
    "find_calibration": "pool calibration *rule *source",
    "load_calibration": "path",
    "evaluate_pool": "path *progress **options",
}


def shown(parameters: list[inspect.Parameter]) -> str:
    marks = {inspect.Parameter.KEYWORD_ONLY: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    return " ".join(marks.get(one.kind, "") + one.name for one in parameters if one.name != "self")


@pytest.mark.parametrize("name", SIGNATURES)
def test_a_public_signature_is_the_documented_one(name: str) -> None:
    head, _, method = name.partition(".")
    thing = getattr(radmoe, head)
    signature = inspect.signature(getattr(thing, method) if method else thing)
    assert shown(list(signature.parameters.values())) == SIGNATURES[name]


def test_every_public_name_can_be_imported() -> None:
    assert sorted(radmoe.__all__) == radmoe.__all__
    for name in radmoe.__all__:
        assert getattr(radmoe, name) is not None

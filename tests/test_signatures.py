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
    "grade_pool": "path problems *jobs *timeout *unconfined *progress",
    "merge_pools": "sources out *progress",
    "PoolWriter": "path *shape *vocab *model *task *style *sampling *profile *provenance *workers *shard_bytes",
    "PoolWriter.add": "problem_id rollout *kind *rollout_index *problem_index *text *prompt *finish_reason *extra *prompt_routing",
    "Profile": "sort_experts layers readouts",
    "Engine.sample": "prompt n *kind *problem_id *batch_size **settings",
    "Engine.generate": "prompts n *sampling *batch_size *keys *missing *kinds *profile",
    "EngineOptions": "url served api_key timeout retries probe dtype device threads weights layers",
    "open_engine": "name model options",
    "TransformersEngine": "model *tokenizer *dtype *device *threads *model_name",
    "VllmEngine": "model *weights *layers *memory_mib *model_name **options",
    "VllmHttpEngine": "url model *served *timeout *retries *backoff *api_key *largest *probe",
    "SglangHttpEngine": "url model *served *timeout *retries *backoff *api_key *largest *probe",
    "from_vllm": "output llm *kind *problem_id *routing *topk_logprobs",
    "Sampling": "temperature top_p max_tokens seed topk_logprobs",
    "Plan": "problems engine sampling profile n task style raw weights batch_size places adaptive preset",
    "capture_pool": "plan out *progress",
    "load_questions": "task data *kind *seed *limit",
    "Question": "problem_id content kind",
    "Plugin": "commands engines tasks models methods readouts problems trajectories clusters",
    "Anchor": "start length family",
    "Step": "given start kept",
    "Decision": "stop reason selection finished survived needed",
    "Calibration": "origin rule kinds tasks pools",
    "Calibration.judge": "selection group *abstain_below",
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


def test_every_public_name_has_its_signature_here() -> None:
    assert {name.partition(".")[0] for name in SIGNATURES} == set(radmoe.__all__) - {"RadmoeError"}


def test_every_public_name_can_be_imported() -> None:
    assert sorted(radmoe.__all__) == radmoe.__all__
    for name in radmoe.__all__:
        assert getattr(radmoe, name) is not None

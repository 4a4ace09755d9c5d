"""Makes tests/data/frameworks: the same six rollouts of lab-qwen, written by slime's, verl's and prime-rl's own code, and six of vLLM's.

    git clone https://github.com/THUDM/slime (624b824), https://github.com/PrimeIntellect-ai/prime-rl (559b447)
    pip install --no-deps verl==0.9.1 tensordict==0.10.0 pybase64 and what verl's import asks for
    PYTHONPATH=slime:prime-rl/src:tests/support python tests/support/made_by_frameworks.py POOL

    .engines/venv/bin/python tests/support/made_by_frameworks.py vllm      # by a real `vllm serve`, 0.30.0 on a CPU (make test-engines)

POOL is graded and of lab-qwen, `radmoe lab pools -n 3 --config lab-qwen-thinking --task math-2 --limit 2`. The tests read what lies
there, since neither slime nor prime-rl is on PyPI, and verl wants another transformers than radmoe.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import lzma
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from framework_files import Sequence, groups, prime_line, sequences, sglang_line

DATA = Path(__file__).parent.parent / "data/frameworks"


def slime(every: list[Sequence], path: Path) -> None:
    """Sample.append_response_tokens takes SGLang's answers in, and save_debug_rollout_data writes the samples."""
    from slime.observability.rollout_data_utils import save_debug_rollout_data
    from slime.utils.types import Sample

    _, layers, k = every[0].rows.shape
    args = SimpleNamespace(num_layers=layers, moe_router_topk=k)
    samples = []
    for i, one in enumerate(every):
        made = Sample(group_index=one.group, index=i, prompt="a prompt", tokens=list(one.prompt), reward=one.reward)
        meta = sglang_line(one)["meta_info"] | {"weight_version": "1"}
        made.append_response_tokens(args, tokens=one.tokens, log_probs=one.logprobs, meta_info=meta, text="")
        samples.append(made)
    save_debug_rollout_data(str(path), samples, rollout_id=0, evaluation=False)


def verl(every: list[Sequence], path: Path) -> None:
    """The agent loop's own padding and batching, and DataProto.save_to_disk, which rollout.skip calls."""
    from transformers import PreTrainedTokenizerFast
    from verl.experimental.agent_loop.agent_loop import AgentLoopWorker

    from radmoe.engines.models import resolve_model

    async def nothing(*_: object, **__: object) -> None:
        pass

    width, length = (
        max(map(len, parts)) + 3 for parts in ([one.prompt for one in every], [one.tokens for one in every])
    )
    worker = SimpleNamespace(
        tokenizer=PreTrainedTokenizerFast.from_pretrained(resolve_model("lab-qwen")),
        rollout_config=SimpleNamespace(prompt_length=width, response_length=length),
        processor=None,
        reward_loop_worker_handles=None,
        distillation_enabled=False,
        _compute_score=nothing,
        _compute_teacher_logprobs=nothing,
        _compute_multi_modal_inputs=lambda *_: {},
        _compute_position_ids=lambda ids, mask, *_: mask.cumsum(1) - 1,
        _get_mm_processor_kwargs=lambda *_: {},
    )
    worker.tokenizer.pad_token_id = 0
    worker._pad_token_ids = lambda *a, **k: AgentLoopWorker._pad_token_ids(worker, *a, **k)

    async def padded() -> list[object]:
        return [
            await AgentLoopWorker._agent_loop_postprocess(worker, output(one), False, raw_prompt=[]) for one in every
        ]

    uid = {"uid": np.array([one.problem for one in every], object)}
    batch = AgentLoopWorker._postprocess(worker, asyncio.run(padded()), uid)
    batch.save_to_disk(path)


def output(one: Sequence) -> Any:
    """What an agent loop of verl hands over."""
    from verl.experimental.agent_loop.agent_loop import AgentLoopMetrics, AgentLoopOutput

    return AgentLoopOutput(
        prompt_ids=one.prompt,
        response_ids=one.tokens,
        response_mask=[1] * len(one.tokens),
        response_logprobs=one.logprobs,
        routed_experts=one.rows,
        reward_score=one.reward,
        num_turns=2,
        metrics=AgentLoopMetrics(),
    )


def verl_v1(every: list[Sequence], path: Path) -> None:
    """The fields that AgentLoopWorkerTQ puts into the transfer queue, and RolloutTqSkip.prepare_data, which saves what it holds.

    The queue itself is left out: what was put in comes out.
    """
    from verl.utils.skip.rollout_skip import RolloutTqSkip
    from verl.utils.tensordict_utils import list_of_dict_to_tensordict

    fields = []
    for one in every:
        field = output(one).as_dict() | {
            "raw_prompt": [{"role": "user", "content": "?"}],
            "uid": one.problem,
            "global_steps": 1,
        }
        fields.append(field | {"loss_mask": field["response_mask"], "multi_modal_inputs": {}})
    keys = [f"{one.problem.replace('_', '-')}_{one.index}_0" for one in every]
    queue = ModuleType("transfer_queue")
    queue.kv_batch_get = lambda **_: list_of_dict_to_tensordict(fields)  # type: ignore[attr-defined]
    sys.modules["transfer_queue"] = queue
    skip = RolloutTqSkip.__new__(RolloutTqSkip)
    skip._find_first_missing_inner = lambda step: 0  # type: ignore[method-assign]
    skip._get_v1_inner_dir = lambda step, inner: path.parent  # type: ignore[method-assign]
    skip.prepare_data(1, SimpleNamespace(keys=keys, partition_id="train", tags=[{"status": "success"}] * len(keys)), 1)
    (path.parent / "meta.json").unlink()


def prime(every: list[Sequence], path: Path) -> None:
    """serialize_routed_experts encodes what vLLM would return; prime-rl imports vLLM for the type alone."""
    outputs = ModuleType("vllm.outputs")
    outputs.RequestOutput = object  # type: ignore[attr-defined]
    sys.modules |= {"vllm": ModuleType("vllm"), "vllm.outputs": outputs}
    from importlib.util import module_from_spec, spec_from_file_location

    where = next(Path(p) for p in sys.path if (Path(p) / "prime_rl/inference/vllm/routed_experts.py").is_file())
    spec = spec_from_file_location("routed_experts", where / "prime_rl/inference/vllm/routed_experts.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    lines = []
    for members in groups(every):
        line = prime_line(members)
        for choice, one in zip(line["choices"], members, strict=True):
            choice["routed_experts"] = module.serialize_routed_experts(one.rows)
        lines.append(json.dumps(line) + "\n")
    path.write_text("".join(lines))


def vllm(path: Path) -> None:
    """Two responses of three choices each, as the server sends them, with their problem's name."""
    from transformers import AutoTokenizer

    from radmoe.engines.models import resolve_model
    from radmoe_lab.tasks import problems
    from vllm_parts import untie
    from vllm_server import running

    with TemporaryDirectory() as scratch:
        model = untie(resolve_model("lab-qwen"), Path(scratch) / "model")
        tokenizer = AutoTokenizer.from_pretrained(model)
        with running(model, Path(scratch) / "log") as server, path.open("w") as file:
            for problem in problems("math-2", limit=2):
                asked = [{"role": "user", "content": problem.prompt}]
                prompt = list(tokenizer.apply_chat_template(asked, add_generation_prompt=True)["input_ids"])
                options = {"max_tokens": 60, "temperature": 1.0, "logprobs": 5, "ignore_eos": False}
                answer = server.complete(None, 3, prompt=prompt, **options)
                file.write(json.dumps({"problem_id": problem.problem_id, **answer}) + "\n")


def packed(path: Path) -> None:
    path.with_name(f"{path.name}.xz").write_bytes(lzma.compress(path.read_bytes(), preset=9))
    path.unlink()


if __name__ == "__main__":
    if sys.argv[1] == "vllm":
        vllm(DATA / "vllm.jsonl")
        packed(DATA / "vllm.jsonl")
        raise SystemExit
    rollouts, digest = sequences(Path(sys.argv[1])), hashlib.sha256()
    DATA.mkdir(exist_ok=True)
    for one in rollouts:  # tokens and routing as a pool has them
        digest.update(
            np.array(one.tokens, np.int32).tobytes() + one.rows[len(one.prompt) - 1 :].astype(np.int16).tobytes()
        )
    (DATA / "sha256.json").write_text(json.dumps(digest.hexdigest()))
    for write, name in (
        (slime, "rollout_0.pt"),
        (verl, "gen_batch.dp"),
        (verl_v1, "tq_batch.pt"),
        (prime, "responses.jsonl"),
    ):
        write(rollouts, DATA / name)
        packed(DATA / name)

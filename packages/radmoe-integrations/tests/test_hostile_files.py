"""Files that are cut, damaged, forged or of something else: one line says so, nothing of them is run, and no pool is touched."""

from __future__ import annotations

import io
import json
import lzma
import os
import pickle
import struct
import zipfile
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import framework_files as files
from command_line import error, radmoe
from framework_files import Sequence
from radmoe.engines.checkpoint import Checkpoint
from radmoe.engines.models import resolve_model
from radmoe.errors import RadmoeError
from radmoe_integrations.imports import responses, slime, verl
from radmoe_integrations.imports.found import Unusable
from radmoe_integrations.imports.tensors import opened, read_torch
from radmoe_integrations.imports.work import ImportWork, import_rollouts

DATA = Path(__file__).parents[3] / "tests/data/frameworks"
FORMS = ("slime", "verl", "verl dict", "prime-rl", "vllm", "sglang")


@pytest.fixture(scope="module")
def every(tmp_path_factory: pytest.TempPathFactory) -> list[Sequence]:
    """Two problems with three rollouts each."""
    place = tmp_path_factory.mktemp("few")
    source = place / "rollout_0.pt"
    source.write_bytes(lzma.decompress((DATA / "rollout_0.pt.xz").read_bytes()))
    work = ImportWork("slime", [source], "lab-qwen", kind="math")
    import_rollouts(work, place / "pool")
    made = []
    with opened(source) as file:
        for i, found in enumerate(slime.rollouts(file, source, reward_key=None)):
            assert not isinstance(found, tuple)
            rows = found.rows(1 - len(found.prompt), len(found.tokens))[0]
            logs = found.sampled.tolist()
            made.append(
                Sequence(
                    f"p{found.problem}", int(found.problem), i % 3, found.prompt.tolist(), found.tokens.tolist(), rows, logs,
                    [[value] for value in logs], found.reward, found.reason,
                )
            )  # fmt: skip
    return made


@pytest.fixture(scope="module")
def checkpoint() -> Checkpoint:
    return Checkpoint(resolve_model("lab-qwen"))


def refused(form: str, source: Path, *, model: str = "lab-qwen", **options: Any) -> str:
    """The one line of a refusal; no pool is there afterwards."""
    out = source.parent / "never"
    with pytest.raises(RadmoeError) as caught:
        import_rollouts(ImportWork(form.split()[0], [source], model, **options), out)
    assert not out.exists()
    assert "\n" not in str(caught.value)
    return str(caught.value)


class Runs:
    """A pickle that makes a file when it is loaded by pickle."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.marker),)


def test_a_pickle_that_runs_code_is_refused_in_one_line_and_runs_nothing(every: list[Sequence], tmp_path: Path) -> None:
    marker, source = tmp_path / "ran", tmp_path / "rollout_0.pt"
    samples = [files.sample(one) | {"metadata": Runs(marker)} for one in every]
    torch.save({"rollout_id": 0, "samples": samples}, source)
    done = radmoe("import", "slime", source, "--model", "lab-qwen", "--out", tmp_path / "pool", expect=2)
    assert "is a pickle with the name 'posix.mkdir', which its format does not have" in error(done)
    assert not marker.exists()
    assert not (tmp_path / "pool").exists()
    pickle.loads(pickle.dumps(Runs(marker)))  # as it would have been
    assert marker.exists()


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("form", ["slime", "verl"])
def test_no_pickle_of_any_protocol_is_run(form: str, protocol: int, tmp_path: Path) -> None:
    marker, source = tmp_path / "ran", tmp_path / "file"
    source.write_bytes(pickle.dumps({"samples": [Runs(marker)]}, protocol=protocol))
    refused(form, source)
    assert not marker.exists()


@pytest.mark.parametrize(
    "code",
    [
        b"cos\nsystem\n(S'touch ran'\ntR.",
        b"(S'touch ran'\nios\nsystem\n.",
        b"(cos\nsystem\nS'touch ran'\no.",
        b"\x80\x02cbuiltins\neval\n\x8c\x01a\x85R.",
        b"\x80\x04\x8c\x08builtins\x8c\x04eval\x93\x8c\x01a\x85R.",
        b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n}b.",
        b"\x80\x02}\x82\x01.",
        b"\x80\x02ccollections\nOrderedDict\n\x81.",
        b"\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\x7f}.",
        b"\x80\x04\x8e\xff\xff\xff\xff\xff\xff\xff\x7f.",
        b"\x80\x02}r\xff\xff\xff\xff.",
        b"\x80\x02" + b"]" * 100_000 + b"a" * 99_999 + b".",
        b"\x80\x02}" + b"(" * 1000,
        b"\x80\x02" + b"((" * 50 + b"t" * 100 + b"}\x86.",
    ],
)
def test_no_instruction_of_a_forged_pickle_runs_or_takes_memory(code: bytes, tmp_path: Path) -> None:
    source = tmp_path / "rollout.pt"
    with zipfile.ZipFile(source, "w") as archive:
        archive.writestr("rollout/data.pkl", code)
    refused("slime", source)
    source.write_bytes(code)
    refused("verl", source)
    assert not Path("ran").exists()


def test_a_tower_of_references_takes_no_time(tmp_path: Path) -> None:
    """Lists of the same two lists, 200 deep: 2^200 values to whoever follows them all."""
    tower = (
        b"\x80\x02]q\x00"
        + b"".join(b"](h%ch%ceq%c" % (i, i, i + 1) for i in range(200))
        + b"}X\x07\x00\x00\x00samplesh\xc8s."
    )
    source = tmp_path / "rollout.pt"
    with zipfile.ZipFile(source, "w") as archive:
        archive.writestr("rollout/data.pkl", tower)
    refused("slime", source)


def patched(path: Path, change: Callable[[bytes], bytes]) -> Path:
    """A torch file with another data.pkl."""
    with zipfile.ZipFile(path) as archive:
        members = {info.filename: archive.read(info) for info in archive.infolist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, change(content) if name.endswith("data.pkl") else content)
    return path


def test_shapes_that_lie_are_refused_before_anything_is_read_for_them(every: list[Sequence], tmp_path: Path) -> None:
    source = files.write_slime(tmp_path / "r.pt", every)
    _, layers, k = every[0].rows.shape
    rows = len(every[0].rows)
    size = b"K" + bytes([rows]) + b"K" + bytes([layers]) + b"K" + bytes([k])
    strides = b"K" + bytes([layers * k]) + b"K" + bytes([k]) + b"K\x01"
    billion = b"J" + struct.pack("<i", 10**9) + size[2:]
    assert "claims a tensor of shape (1000000000, 11, 8)" in refused(
        "slime", patched(source, lambda c: c.replace(size, billion))
    )
    files.write_slime(source, every)
    still = b"K\x00" + strides[2:]
    forged = patched(source, lambda c: c.replace(size, billion).replace(strides, still))
    assert "does not lie row after row" in refused("slime", forged)


@pytest.mark.parametrize(
    ("place", "value"), [(2, 10**12), (2, -1), (0, "torch.complex128"), (1, [10**9, 10**9, 10**9])]
)
def test_a_tensordict_that_lies_is_refused(place: int, value: Any, every: list[Sequence], tmp_path: Path) -> None:
    def forge(leaves: dict[str, Any]) -> None:
        leaves["routed_experts"] = tuple(value if i == place else old for i, old in enumerate(leaves["routed_experts"]))

    source = files.write_dataproto(tmp_path / "gen_batch.dp", every, forge=forge)
    assert "gen_batch.dp" in refused("verl", source)


@pytest.mark.parametrize(
    "shape", [[10**9, 11, 8], [-1, 11, 8], [1, 1], [1, 11.0, 8], "many", None, [2**62, 2**62, 2**62]]
)
def test_a_shape_of_prime_rl_that_lies_is_refused(shape: Any, every: list[Sequence], tmp_path: Path) -> None:
    line = files.prime_line(every[:3])
    line["choices"][1]["routed_experts"]["shape"] = shape
    assert "line 1" in refused("prime-rl", files.write_lines(tmp_path / "r.jsonl", [line]))


def test_an_npy_that_claims_a_billion_rows_is_refused(every: list[Sequence], tmp_path: Path) -> None:
    import base64

    line = files.vllm_line(every[:3])
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(head, {"descr": "|u1", "fortran_order": False, "shape": (10**9, 11, 8)})
    line["choices"][0]["routed_experts"] = base64.b64encode(head.getvalue()).decode()
    assert "are no base64 .npy of [rows, layers, k]" in refused("vllm", files.write_lines(tmp_path / "r.jsonl", [line]))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("share", [0.0, 0.02, 0.5, 0.98])
def test_a_file_that_was_cut_is_refused(form: str, share: float, every: list[Sequence], tmp_path: Path) -> None:
    source = files.write(form, tmp_path, every)
    content = source.read_bytes()
    source.write_bytes(content[: int(len(content) * share)])
    assert source.name in refused(form, source)


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_flipped_bytes_raise_nothing_but_refusals(
    form: str, every: list[Sequence], checkpoint: Checkpoint, tmp_path: Path
) -> None:
    """Whatever a damaged file says, its reader yields rollouts or refuses it in one line."""
    source = files.write(form, tmp_path, every)
    good, rng, words, said = source.read_bytes(), np.random.default_rng(0), len(checkpoint.vocab), set[str]()
    described = [i for i in range(len(good)) if good[i : i + 4] in (b"PK\1\2", b"PK\3\4", b"\x80\x02}q", b"\x80\x02ct")]
    for trial in range(150):
        bad = bytearray(good)
        near = rng.choice(described) if described and trial % 2 else 0
        for _ in range(rng.integers(1, 4)):
            place = int(near + rng.integers(3000)) if near or trial % 3 else int(rng.integers(len(bad)))
            bad[place % len(bad)] = rng.integers(256)
        source.write_bytes(bad)
        try:
            with ExitStack() as stack:
                file = stack.enter_context(opened(source))
                for found in reader(form, checkpoint, stack)(file, source):
                    if not isinstance(found, tuple):
                        found.rollout(checkpoint.router, words, "a kernel")
        except (RadmoeError, Unusable) as refusal:
            said.add(str(refusal))
    assert said
    assert not any("\n" in one for one in said)


def reader(form: str, checkpoint: Checkpoint, stack: ExitStack) -> Callable[..., Any]:
    if form == "slime":
        return partial(slime.rollouts, reward_key=None)
    if form.startswith("verl"):
        return partial(verl.rollouts, reward_key=None, stack=stack)
    return partial(responses.rollouts, server=form, layout=checkpoint.router, words=len(checkpoint.vocab))


@pytest.mark.parametrize("form", FORMS)
def test_rewards_that_are_no_numbers_are_refused(form: str, every: list[Sequence], tmp_path: Path) -> None:
    broken = [every[0]._replace(reward=float("nan")), *every[1:]]
    assert "the reward nan, which is no finite number" in refused(form, files.write(form, tmp_path, broken))


def test_rewards_between_0_and_1_need_a_threshold(every: list[Sequence], tmp_path: Path) -> None:
    source = files.write_slime(tmp_path / "r.pt", [one._replace(reward=0.35) for one in every])
    assert "such as 0.35, neither 0 nor 1: say with --threshold" in refused("slime", source)


def test_a_reward_among_several_is_named(every: list[Sequence], tmp_path: Path) -> None:
    samples = [files.sample(one) | {"reward": {"acc": one.reward, "format": 1.0}} for one in every]
    source = tmp_path / "r.pt"
    torch.save({"samples": samples}, source)
    assert "has the rewards acc, format: name one of them with --reward-key" in refused("slime", source)
    work = ImportWork("slime", [source], "lab-qwen", reward_key="acc")
    assert sum(work.correct.values()) == sum(one.reward for one in every)


@pytest.mark.parametrize("form", FORMS)
def test_groups_of_one_are_refused_where_all_are(form: str, every: list[Sequence], tmp_path: Path) -> None:
    alone = [every[0], every[3]]
    assert "all 2 problems of" in refused(form, files.write(form, tmp_path, alone))
    work = ImportWork(form.split()[0], [files.write(form, tmp_path, every[:4])], "lab-qwen")
    assert work.alone == 1


def test_rollouts_of_two_models_are_refused(every: list[Sequence], tmp_path: Path) -> None:
    made = [files.vllm_line(every[:3]), files.vllm_line(every[3:]) | {"model": "other"}]
    said = refused("vllm", files.write_lines(tmp_path / "r.jsonl", made))
    assert "is of model 'other', those before it of 'lab-qwen'" in said
    narrow = [one._replace(rows=one.rows[:, :5].copy()) for one in every[3:]]
    source = files.write_slime(tmp_path / "r.pt", [*every[:3], *narrow])
    assert "returns 5 layers, top-8; lab-qwen has 11 layers" in refused("slime", source)
    many = [every[0]._replace(rows=np.where(every[0].rows == 3, 40, every[0].rows)), *every[1:]]
    assert "names expert 40, and lab-qwen has 32" in refused("slime", files.write_slime(source, many))
    foreign = [every[0]._replace(tokens=[10**6, *every[0].tokens[1:]]), *every[1:]]
    assert "pass --model the checkpoint that sampled it" in refused("slime", files.write_slime(source, foreign))


def test_a_group_of_several_prompts_is_refused(every: list[Sequence], tmp_path: Path) -> None:
    mixed = [one._replace(group=0) for one in every]
    assert "a group has one prompt" in refused("slime", files.write_slime(tmp_path / "r.pt", mixed))


@pytest.mark.parametrize("unset", [0, -1])
@pytest.mark.parametrize("form", ["slime", "verl dict"])
def test_rows_without_routing_are_never_read_as_routing(
    form: str, unset: int, every: list[Sequence], tmp_path: Path
) -> None:
    """One row of one layer costs the rollout, with its reason; where all have such rows, the file is refused."""

    def lost(one: Sequence) -> Sequence:
        rows = one.rows.copy()
        rows[len(one.prompt) + 2, 4] = unset
        return one._replace(rows=rows)

    work = ImportWork(form.split()[0], [files.write(form, tmp_path, [lost(every[0]), *every[1:]])], "lab-qwen")
    ((reason, count),) = work.left_out.items()
    assert count == 1
    assert reason.startswith("they have rows without routing")
    assert len(work.names) == 5
    said = refused(form, files.write(form, tmp_path, [lost(one) for one in every]))
    assert "no rollout of" in said
    assert "they have rows without routing" in said


def test_samples_without_routing_say_which_flag_is_missing(every: list[Sequence], tmp_path: Path) -> None:
    samples = [files.sample(one) | {"rollout_routed_experts": None} for one in every]
    source = tmp_path / "r.pt"
    torch.save({"samples": samples}, source)
    assert "--use-rollout-routing-replay" in refused("slime", source)
    plain = {name: tensor for name, tensor in files.batch(every).items() if name != "routed_experts"}
    torch.save(plain, source)
    assert "enable_rollout_routing_replay=True" in refused("verl", source)


@pytest.mark.parametrize("shift", [1, -1])
def test_rows_that_are_shifted_against_their_tokens_are_refused(
    shift: int, every: list[Sequence], tmp_path: Path
) -> None:
    late = [one._replace(rows=np.roll(one.rows, shift, 0)) for one in every]
    assert "the rows are" in refused("slime", files.write_slime(tmp_path / "r.pt", late))


def test_routing_at_the_last_token_of_verl_is_a_shift(every: list[Sequence], tmp_path: Path) -> None:
    batch = files.batch(every)
    batch["routed_experts"] = batch["routed_experts"].roll(1, 1)
    source = tmp_path / "batch.pt"
    torch.save(batch, source)
    assert "has routing at its last token, through which no pass went" in refused("verl", source)


@pytest.mark.parametrize("fill", [0, -1, 5])
def test_layers_without_experts_are_left_out_and_said(fill: int, every: list[Sequence], tmp_path: Path) -> None:
    """Zeros or -1 stand in a dense layer; anything else there is another model's routing."""
    model = tmp_path / "model"
    model.mkdir()
    for file in resolve_model("lab-qwen").iterdir():
        if file.suffix in (".json", ".jinja"):
            (model / file.name).write_bytes(file.read_bytes())
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 12, "mlp_only_layers": [0]}))
    dense = [one._replace(rows=np.concatenate([np.full_like(one.rows[:, :1], fill), one.rows], 1)) for one in every]
    source = files.write_slime(tmp_path / "r.pt", dense)
    if fill == 5:
        assert "routes in layer 0, which has no experts in model" in refused("slime", source, model=str(model))
        return
    work = ImportWork("slime", [source], str(model))
    assert (work.dense, len(work.names), work.record["shape"].layers) == ((0,), 6, 11)


def test_what_is_no_file_of_rollouts_is_refused(tmp_path: Path, every: list[Sequence]) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "zeros").write_bytes(bytes(1000))
    with (tmp_path / "hole").open("wb") as file:
        file.truncate(1 << 40)
    for form in FORMS:
        for name in ("fifo", "zeros", "nothing", "."):
            refused(form, tmp_path / name)
    for form in ("slime", "verl"):
        refused_reader = reader(form, None, ExitStack())  # type: ignore[arg-type]
        with opened(tmp_path / "hole") as file, pytest.raises(RadmoeError):
            list(refused_reader(file, tmp_path / "hole"))
    with zipfile.ZipFile(tmp_path / "bomb.pt", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("bomb/data.pkl", bytes(10_000_000))
    assert "compressed zip archive" in refused("slime", tmp_path / "bomb.pt")
    with opened(files.write_slime(tmp_path / "r.pt", every)) as file:
        assert sorted(read_torch(file, tmp_path / "r.pt")) == ["rollout_id", "samples"]
    assert "the format must be one of slime, verl, prime-rl, vllm, sglang" in refused("trl", tmp_path / "zeros")


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("{", "is not JSON"),
        ("[]", "line 1"),
        ("3", "line 1"),
        ('{"choices": []}', "line 1"),
        ('{"choices": [{"token_ids": [1, 99999], "finish_reason": "stop"}]}', "pass the directory"),
        ('{"choices": [{"token_ids": null, "finish_reason": "stop"}]}', "token_ids"),
        ("[" * 100_000, "is not JSON"),
        ("[" * 5_000_000, "values in line 1"),
    ],
)
def test_lines_that_are_no_responses_are_refused(line: str, says: str, tmp_path: Path) -> None:
    source = tmp_path / "r.jsonl"
    source.write_text(line + "\n")
    assert says in refused("vllm", source)

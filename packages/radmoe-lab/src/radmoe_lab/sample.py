"""Sample the rollouts that are shipped: `python -m radmoe_lab.sample lab-qwen --style thinking --out DIR`.

All tasks of one configuration (a model in one style) are sampled by one call of the engine, with the prompts, settings and
random numbers of `radmoe capture`, and go to one file DIR/lab-qwen-thinking.npz. It is written whole or not at all.
`radmoe_lab.archive.pack` grades and packs such files. Nothing here needs more than torch, transformers and numpy, so that it
runs on a bare GPU machine.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from hashlib import file_digest
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from radmoe.engines.base import Completion, sampling_for
from radmoe.engines.prompts import encode, template_arguments
from radmoe.errors import InputError, RadmoeError
from radmoe.problems import DEFAULT_SEED, Question, load_questions
from radmoe.system.foreign import check_recorded
from radmoe.system.printing import say
from radmoe_lab.matrices import Matrices
from radmoe_lab.models import model_named, weights
from radmoe_lab.tasks import ALL_TASKS, TASKS, task_named

if TYPE_CHECKING:
    from radmoe_lab.inference.engine import LabEngine

FINISH_REASONS = ("stop", "length")  # a rollout's finish reason is its place here
SAMPLED_FILES = ("model.safetensors", "tokenizer.json")  # of a checkpoint: on these depends what is sampled
_SAY_EVERY_S = 10.0
_HEADER = "header"


@dataclass(frozen=True, eq=False)
class TaskRollouts:
    """The rollouts of P problems, n of each, side by side: problem after problem, rollout after rollout."""

    tokens: NDArray[np.uint16]  # [sum of the lengths]
    lengths: NDArray[np.int32]  # [P, n]
    finish_reasons: NDArray[np.uint8]  # [P, n], places in FINISH_REASONS
    logprobs: NDArray[np.float64]  # [P, n], sums over the sampled tokens


@dataclass(frozen=True, eq=False)
class Sampled:
    """The rollouts of one configuration: what was asked for, and the routing of its first problem.

    `expert_ids` and `weights` [T, L, K] have the tokens of all rollouts of the first problem of the first task.
    """

    header: dict[str, Any]
    tasks: dict[str, TaskRollouts]
    expert_ids: NDArray[np.int16]
    weights: NDArray[np.float16]


def checksums(checkpoint: Path) -> dict[str, str]:
    """The sha256 of the files of a checkpoint that decide what is sampled."""
    sums = {}
    for name in SAMPLED_FILES:
        with (checkpoint / name).open("rb") as file:
            sums[name] = file_digest(file, "sha256").hexdigest()
    return sums


def write_sampled(path: Path, sampled: Sampled) -> None:
    """Write a file of rollouts, which appears whole or not at all."""
    arrays: dict[str, NDArray[Any]] = {
        _HEADER: np.frombuffer(json.dumps(sampled.header).encode(), np.uint8),
        "expert_ids": sampled.expert_ids,
        "weights": sampled.weights,
    }
    arrays |= {f"{task}/{name}": array for task, each in sampled.tasks.items() for name, array in vars(each).items()}
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        with partial.open("wb") as file:
            np.savez_compressed(file, allow_pickle=False, **arrays)
        partial.rename(path)
    finally:
        partial.unlink(missing_ok=True)


def read_header(path: Path) -> dict[str, Any]:
    """Read the header of a file of rollouts. Raises an InputError if it is not one."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            header = json.loads(bytes(arrays[_HEADER]))
            return dict(header)
    except Exception as error:  # a damaged file may fail anywhere in zip, numpy or json
        raise _not_sampled(path, error) from None


def read_sampled(path: Path) -> Sampled:
    """Read a file of rollouts. Raises an InputError if it is not one or is damaged."""
    header = read_header(path)
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            tasks = {
                check_recorded(task, ALL_TASKS, "task", "it", "sample it again"): TaskRollouts(
                    **{name: arrays[f"{task}/{name}"] for name in TaskRollouts.__dataclass_fields__}
                )
                for task in header["settings"]["problems"]
            }
            return Sampled(header, tasks, arrays["expert_ids"], arrays["weights"])
    except Exception as error:
        raise _not_sampled(path, error) from None


def _not_sampled(path: Path, error: Exception) -> InputError:
    reason = (str(error).strip() or type(error).__name__).splitlines()[0]
    return InputError(f"{path} holds no rollouts that can be read ({reason}): sample it again with radmoe_lab.sample")


def sample(
    model: str,
    style: str,
    out: Path,
    *,
    tasks: Sequence[str] = tuple(TASKS),
    n: int = 64,
    limit: int | None = None,
    seed: int = DEFAULT_SEED,
    device: str = "cpu",
    batch_size: int = 4096,
    temperature: float | None = None,
    top_p: float | None = None,
    max_tokens: int | None = None,
    checkpoint: Path | None = None,
    matrices: Sequence[str] | None = None,
    command: str = "",
) -> Path:
    """Sample n rollouts of every problem of the tasks, and return the file they are in.

    `matrices` are readouts by which the rollouts of a problem are compared; what that gives is in a file of its own beside it.

    A file of the same settings and weights is kept as it is; one of others is an InputError. `checkpoint` is the directory
    of the weights, by default the shipped ones. Tokens per second count the sampling alone, prompts included.
    """
    model_named(model).check_style(style)
    if not 1 <= n <= np.iinfo(np.uint8).max:
        raise InputError(f"-n must lie between 1 and {np.iinfo(np.uint8).max}, got {n}")
    questions = {task_named(task).name: load_questions(task, seed=seed, limit=limit)[0] for task in tasks}
    path = out / f"{model}-{style}.npz"
    engine = open_lab_engine(model, checkpoint or weights(model), device)
    sampling = sampling_for(engine, temperature=temperature, top_p=top_p, max_tokens=max_tokens, seed=seed)
    assert engine.checkpoint is not None
    settings = {
        "model": model,
        "style": style,
        "n": n,
        "problems": {task: [question.problem_id for question in each] for task, each in questions.items()},
        "sampling": asdict(sampling),
        "dtype": engine.dtype,
        "checkpoint": checksums(engine.checkpoint),
    }
    if path.exists():
        _check_same(path, settings)
        say(f"{path} is there already, with these settings and weights: nothing to sample")
        return path
    out.mkdir(parents=True, exist_ok=True)
    asked = [question for each in questions.values() for question in each]
    rollouts, takers = _Rollouts(len(asked), n), list[Callable[[Completion], None]]()
    takers.append(rollouts.add)
    if matrices:
        kinds = [(question.problem_id, task_named(task).kind) for task, each in questions.items() for question in each]
        compared = Matrices(matrices, kinds, n, engine.vocab, engine.shape, engine.model.device)
        takers.append(compared.add)
    began = time.perf_counter()
    _generate(engine, style, asked, n, takers, sampling=sampling, batch_size=batch_size)
    seconds = time.perf_counter() - began
    header = {
        "settings": settings,
        "command": command,
        "device": device_name(engine),
        "batch_size": batch_size,
        "versions": engine.versions | {"numpy": np.__version__, "python": platform.python_version()},
        "router": list(vars(engine.shape).values()),
        "tokens": rollouts.tokens,
        "seconds": seconds,
        "tokens_per_second": rollouts.tokens / seconds,
    }
    if matrices:
        compared.write(path.with_suffix(".matrices.npz"), {"settings": settings})
    write_sampled(path, rollouts.sampled(header, questions))
    say(
        f"{path}: {rollouts.done:,} rollouts, {rollouts.tokens:,} tokens in {seconds:.1f} s "
        f"({rollouts.tokens / seconds:,.0f} tokens/s), {path.stat().st_size:,} bytes"
    )
    return path


def open_lab_engine(model: str, checkpoint: Path, device: str) -> LabEngine:
    import transformers

    from radmoe_lab.inference.engine import LabEngine

    transformers.logging.set_verbosity_error()  # hints about kernels that are not installed
    return LabEngine(checkpoint, dtype="float32", device=device, model_name=model)


def _check_same(path: Path, settings: dict[str, Any]) -> None:
    """Raise an InputError if a file of other settings is in the way."""
    theirs = read_header(path).get("settings")
    theirs = theirs if isinstance(theirs, dict) else {}
    for name, value in settings.items():
        if theirs.get(name) != value:
            raise InputError(f"{path} was sampled with other settings ({name}): use another --out, or remove it")


def _generate(
    engine: LabEngine,
    style: str,
    questions: Sequence[Question],
    n: int,
    takers: Sequence[Callable[[Completion], None]],
    **options: Any,
) -> None:
    """Sample all rollouts and hand each to the takers, with a line on stderr every few seconds: a bar would need rich, and a terminal."""
    arguments = template_arguments(style)
    completions = engine.generate(
        [encode(engine.tokenizer, question.content, raw=False, **arguments)[1] for question in questions],
        n,
        keys=[question.problem_id for question in questions],
        **options,
    )
    began = last = time.perf_counter()
    done = 0
    with closing(completions):
        for done, completion in enumerate(completions, 1):
            for take in takers:
                take(completion)
            now = time.perf_counter()
            if now - last > _SAY_EVERY_S:
                last, speed = now, engine.tokens_sampled / (now - began)
                say(f"{done:,} of {len(questions) * n:,} rollouts, {speed:,.0f} tokens/s", err=True)


class _Rollouts:
    """Collects finished rollouts in any order, and keeps the routing of the first problem."""

    def __init__(self, problems: int, n: int) -> None:
        self._tokens: dict[tuple[int, int], NDArray[np.uint16]] = {}
        self._routing: dict[int, tuple[NDArray[np.int16], NDArray[np.float16]]] = {}
        self._finish_reasons = np.zeros((problems, n), np.uint8)
        self._logprobs = np.zeros((problems, n))
        self.tokens = 0

    @property
    def done(self) -> int:
        return len(self._tokens)

    def add(self, completion: Completion) -> None:
        rollout, place = completion.rollout, (completion.prompt_index, completion.rollout_index)
        assert rollout.sampled_logprobs is not None
        assert rollout.weights is not None
        self._tokens[place] = rollout.token_ids.astype(np.uint16)
        self._finish_reasons[place] = FINISH_REASONS.index(completion.finish_reason)
        self._logprobs[place] = rollout.sampled_logprobs.sum(dtype=np.float64)
        if completion.prompt_index == 0:
            self._routing[completion.rollout_index] = rollout.expert_ids, rollout.weights
        self.tokens += len(rollout)

    def sampled(self, header: dict[str, Any], questions: dict[str, list[Question]]) -> Sampled:
        n = self._logprobs.shape[1]
        tasks, first = {}, 0
        for task, each in questions.items():
            stop = first + len(each)
            members = [self._tokens[problem, i] for problem in range(first, stop) for i in range(n)]
            tasks[task] = TaskRollouts(
                np.concatenate(members),
                np.array([len(tokens) for tokens in members], np.int32).reshape(-1, n),
                self._finish_reasons[first:stop],
                self._logprobs[first:stop],
            )
            first = stop
        ids, mass = zip(*(self._routing[i] for i in range(n)), strict=True)
        return Sampled(header, tasks, np.concatenate(ids), np.concatenate(mass))


def device_name(engine: LabEngine) -> str:
    import torch

    device = engine.model.device
    return torch.cuda.get_device_name(device) if device.type == "cuda" else f"{device.type} ({platform.machine()})"


def sampler(
    prog: str, description: str | None, function: Callable[..., Path], arguments: Sequence[str] | None, **own: Any
) -> None:
    """The command line of a sampler: `function` is called with what was typed, and with the command as it can be typed again.

    `own` has the options of this sampler alone, by the name of their parameter, as argparse wants them; `flag` is theirs if it is
    not that name.
    """
    parser = argparse.ArgumentParser(prog=prog, description=(description or "").splitlines()[0])
    common: dict[str, Any] = {
        "out": {"type": Path, "required": True, "help": "the directory of the file that is written"},
        "seed": {"type": int, "default": DEFAULT_SEED, "help": "of the problems and of what is sampled"},
        "device": {"default": "cuda", "help": "cuda or cpu"},
        "temperature": {"type": float, "help": "default: the model's own"},
        "checkpoint": {"flag": "--weights", "type": Path, "help": "a checkpoint's directory; default: the shipped one"},
    }
    parser.add_argument("model", help=own.pop("model"))
    for name, option in (own | common).items():
        flag = option.pop("flag", f"--{name.replace('_', '-')}")
        parser.add_argument(flag, dest=name, **option)
    options = parser.parse_args(arguments)
    try:
        function(**vars(options), command=command_line(parser, options))
    except RadmoeError as error:
        say(f"radmoe: error: {error}", err=True)
        raise SystemExit(2) from None


def command_line(parser: argparse.ArgumentParser, options: argparse.Namespace) -> str:
    """The command as it can be typed elsewhere: of directories, which are this machine's, only the last part is kept."""
    words = [parser.prog, options.model]
    for action in parser._actions:
        value = getattr(options, action.dest, action.default)
        if action.option_strings and value != action.default:
            values = value if isinstance(value, list) else [value.name if isinstance(value, Path) else value]
            words += [action.option_strings[0], *(shlex.quote(str(one)) for one in values if one is not True)]
    return " ".join(words)


def main(arguments: Sequence[str] | None = None) -> None:
    sampler(
        "python -m radmoe_lab.sample",
        __doc__,
        sample,
        arguments,
        model="lab-qwen, lab-oss or lab-next",
        style={"required": True, "help": "thinking or instruct; lab-oss: low, medium or high"},
        tasks={"flag": "--task", "nargs": "+", "default": list(TASKS), "help": "default: all of the lab's tasks"},
        n={"flag": "-n", "type": int, "default": 64, "help": "rollouts per problem"},
        limit={"type": int, "help": "only the first problems of each task"},
        batch_size={"type": int, "default": 4096},
        top_p={"type": float, "help": "default: the model's own"},
        max_tokens={"type": int, "help": "default: the model's own"},
        matrices={"nargs": "+", "metavar": "READOUT", "help": "compare rollouts by these, such as delimiter@16"},
    )


if __name__ == "__main__":
    main()

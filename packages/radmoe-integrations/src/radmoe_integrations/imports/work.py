"""Files of rollouts become a pool, and their rewards its labels.

Everything is checked before the pool is touched: one pass over the files finds what is in them, whether each rollout has routing,
and whether that follows the tokens. A second pass writes the rollouts that the pool lacks, one in memory at a time, so that an
interrupted import goes on where it was.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from radmoe.engines.advice import SGLANG_KERNEL, VLLM_STOCK_KERNEL
from radmoe.engines.base import completion_text
from radmoe.engines.checkpoint import Checkpoint
from radmoe.engines.models import recorded_name, resolve_model
from radmoe.errors import InputError
from radmoe.pool import PoolWriter
from radmoe.pool.work import Making, Name, fill
from radmoe.system.side_by_side import in_order
from radmoe.types import Kind, Rollout, check_kind
from radmoe_integrations.imports import responses, slime, verl
from radmoe_integrations.imports.found import Alignment, Found, Parting, Unusable
from radmoe_integrations.imports.tensors import opened

FORMATS = ("slime", "verl", "prime-rl", "vllm", "sglang")
_KERNELS = {"vllm": VLLM_STOCK_KERNEL, "prime-rl": VLLM_STOCK_KERNEL, "sglang": SGLANG_KERNEL, "slime": SGLANG_KERNEL}
_UNSET = "rows that are unset, or of a kernel that routes by itself"
Tell = Callable[[int, int | None], None]
_Entry = Found | tuple[str, Unusable]  # a rollout of a file, or where one stands that is left out, and why


class _Known(NamedTuple):
    """What the first pass keeps of a rollout."""

    name: Name
    reward: float | None


@dataclass(frozen=True)
class Imported:
    """The result of an import. `left_out` says of the rollouts that are not in the pool why, with how many they are.

    `alone` are groups of one rollout. `dense` are layers without experts, which a file has and a pool has not. `parting` is
    how far rollouts of one prompt agree where they part, and behind it. `uneven` says that log-probabilities are left out, because
    not all rollouts have them, or as many for each token.
    """

    pool: str
    problems: int
    rollouts: int
    imported: int
    labelled: int
    right: int
    alone: int
    left_out: dict[str, int]
    dense: tuple[int, ...]
    parting: Parting
    uneven: bool


class ImportWork:
    """The rollouts of files of one format, found and checked.

    `threshold` is the reward from which a rollout is right; without it all rewards must be 0 or 1. `reward_key` names the one
    that counts where a rollout has several. `progress` is told the rollouts that were looked at.
    """

    batch_size = 1

    def __init__(
        self,
        form: str,
        files: Sequence[Path],
        model: str,
        *,
        kind: Kind | None = None,
        threshold: float | None = None,
        reward_key: str | None = None,
        progress: Tell = lambda done, of: None,
    ) -> None:
        if form not in FORMATS:
            raise InputError(f"the format must be one of {', '.join(FORMATS)}, got {form!r:.40}")
        if len({path.name for path in files}) < len(files):
            raise InputError("two files have the same name, and a pool tells its files by their names: rename one")
        self.kind = None if kind is None else check_kind(kind)
        self._form, self._files, self._reward_key = form, files, reward_key
        self._checkpoint = Checkpoint(resolve_model(model))
        self._kernel = _KERNELS.get(form, _UNSET)
        self.alignment, self.left_out = Alignment(), Counter[str]()
        self._known: dict[str, _Known] = {}  # by where a rollout stands
        self._columns: set[tuple[bool, bool, int]] = set()
        digests = {path.name: _digest(path) for path in files}
        self._look(progress)
        self.names: Sequence[Name] = [known.name for known in self._known.values()]
        self._places = {
            problem: place for place, problem in enumerate(dict.fromkeys(problem for problem, _ in self.names))
        }
        self.uneven = len(self._columns) > 1
        sizes = Counter(problem for problem, _ in self.names)
        self.alone = sum(size == 1 for size in sizes.values())
        if self.alone == len(sizes):
            raise InputError(
                f"all {len(sizes)} problems of {files[0]} have one rollout: there is nothing to choose from, sample several of each"
            )
        self.correct = _correct({known.name: known.reward for known in self._known.values()}, threshold)
        self.record: dict[str, Any] = {
            "shape": self._checkpoint.shape,
            "vocab": self._checkpoint.vocab,
            "model": recorded_name(model),
            "sampling": {"engine": "import", "format": form, "source": {"files": digests}},
        }

    @property
    def dense(self) -> tuple[int, ...]:
        return self._checkpoint.router.dense

    def _each(
        self, wanted: Callable[[_Entry], bool], *, logprobs: bool = True
    ) -> Iterator[tuple[_Entry, Rollout | Unusable]]:
        """The wanted rollouts of the files, in order. Each is read in a thread while the caller has the one before it."""
        with ExitStack() as stack:  # of open files: a rollout is read after its reader has gone on to the next
            reader = self._reader(stack)
            every = (
                one for path in self._files for one in reader(stack.enter_context(opened(path)), path) if wanted(one)
            )
            yield from in_order(partial(self._rollout, logprobs=logprobs), every, 1)

    def _reader(self, stack: ExitStack) -> Callable[[BinaryIO, Path], Iterator[_Entry]]:
        if self._form == "slime":
            return partial(slime.rollouts, reward_key=self._reward_key)
        if self._form == "verl":
            return partial(verl.rollouts, reward_key=self._reward_key, stack=stack)
        checkpoint = self._checkpoint
        return partial(responses.rollouts, server=self._form, layout=checkpoint.router, words=len(checkpoint.vocab))

    def _rollout(self, found: _Entry, *, logprobs: bool) -> Rollout | Unusable:
        if isinstance(found, tuple):
            return found[1]
        try:
            return found.rollout(self._checkpoint.router, len(self._checkpoint.vocab), self._kernel, logprobs=logprobs)
        except Unusable as error:
            return error

    def _look(self, progress: Tell) -> None:
        """The first pass: find every rollout, and check all that can be known without the others, or by them."""
        counts, prompts, models = Counter[str](), dict[str, str](), set[str]()
        for done, (found, rollout) in enumerate(self._each(lambda one: True), 1):
            progress(done, None)
            if isinstance(found, tuple) or isinstance(rollout, Unusable):
                self.left_out[str(rollout)] += 1
                continue
            if found.model is not None and len(models | {found.model}) > 1:
                raise InputError(
                    f"{found.where} is of model {found.model!r:.60}, those before it of {min(models)!r:.60}: import each apart"
                )
            models |= {found.model} if found.model is not None else set()
            group, prompt = found.group, found.prompt_digest
            if prompts.setdefault(group, prompt) != prompt:
                raise InputError(
                    f"{found.where} is of group {group!r:.60}, and its prompt is another than that of the group's first rollout: "
                    "a group has one prompt"
                )
            reward = _checked_reward(found.reward, found.where)
            self._known[found.where] = _Known((group, counts[group]), reward)
            counts[group] += 1
            top = rollout.topk_logprobs
            self._columns.add(
                (rollout.sampled_logprobs is not None, rollout.has_weights, 0 if top is None else top.shape[1])
            )
            self.alignment.add(group, rollout)
        if not self._known:
            reason, count = self.left_out.most_common(1)[0] if self.left_out else ("there is none", 0)
            raise InputError(f"no rollout of {self._files[0]} can be imported, {count:,} for one reason: {reason}")
        if len({weights for _, weights, _ in self._columns}) > 1:
            raise InputError(f"{self._files[0]} has rollouts with weights and without: import each apart")
        self.alignment.check(str(self._files[0]))

    def make(self, names: Sequence[Name], writer: PoolWriter) -> Making:
        """Import these rollouts."""
        wanted, tokenizer = set(names), self._checkpoint.tokenizer

        def missing(one: _Entry) -> bool:
            return isinstance(one, Found) and one.where in self._known and self._known[one.where].name in wanted

        for found, rollout in self._each(missing, logprobs=not self.uneven):
            assert isinstance(found, Found)
            if isinstance(rollout, Unusable):
                raise InputError(f"{found.where} has changed while it was imported: import it again")
            problem, index = name = self._known[found.where].name
            writer.add(
                problem,
                rollout,
                kind=self.kind,
                rollout_index=index,
                problem_index=self._places[problem],
                text=completion_text(tokenizer, rollout.token_ids, found.reason or ""),
                prompt=tokenizer.decode(found.prompt.tolist(), skip_special_tokens=False)
                if found.prompt.size
                else None,
                finish_reason=found.reason,
            )
            yield name, len(rollout)


def import_rollouts(work: ImportWork, out: Path, *, progress: Tell = lambda done, of: None) -> Imported:
    """Write what the pool at `out` lacks of a work, and its labels where there are rewards."""
    total = len(work.names)
    done = fill(work, out, lambda now: progress(total - now.of_rollouts + now.rollouts, total))
    if work.correct:
        from radmoe_integrations.imports.labels import write_rewards

        write_rewards(out, work.correct)
    return Imported(
        str(out),
        len({problem for problem, _ in work.names}),
        total,
        done.rollouts,
        len(work.correct),
        sum(work.correct.values()),
        work.alone,
        dict(work.left_out),
        work.dense,
        work.alignment.total,
        work.uneven,
    )


def _checked_reward(reward: Any, where: str) -> float | None:
    if reward is None:
        return None
    if isinstance(reward, bool | int | float) and math.isfinite(reward):
        return float(reward)
    raise InputError(
        f"{where} has the reward {reward!r:.40}, which is no finite number: mend the reward, or leave the rollout out"
    )


def _correct(rewards: dict[Name, float | None], threshold: float | None) -> dict[Name, bool]:
    """Which rollouts are right; empty where there are no rewards."""
    known = {name: reward for name, reward in rewards.items() if reward is not None}
    if known and len(known) < len(rewards):
        raise InputError(
            f"{len(rewards) - len(known)} of {len(rewards)} rollouts have no reward: give all of them one, or none"
        )
    if threshold is not None:
        if not known:
            raise InputError(f"--threshold {threshold:g} was given, and no rollout has a reward: leave it out")
        return {name: reward >= threshold for name, reward in known.items()}
    if (odd := next((reward for reward in known.values() if reward not in (0, 1)), None)) is not None:
        raise InputError(
            f"there are rewards such as {odd:g}, neither 0 nor 1: say with --threshold from which on a rollout is right"
        )
    return {name: reward == 1 for name, reward in known.items()}


def _digest(path: Path) -> str:
    with opened(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

"""The state of a replication in its directory: run.json, with the seed that was drawn and the estimates that were made."""

from __future__ import annotations

import json
import secrets
from dataclasses import asdict, dataclass
from pathlib import Path

from radmoe.cli.common import write_file
from radmoe.errors import InputError
from radmoe.problems import Question
from radmoe.system.printing import json_text, say
from radmoe_studies.replicate.configs import PaperConfiguration
from radmoe_studies.replicate.estimate import Estimate, estimate
from radmoe_studies.replicate.setup import Setup

STATE = "run.json"


@dataclass(frozen=True)
class Run:
    """A replication in a directory. An estimate belongs to so many rollouts of one engine, and is made anew for others."""

    out: Path
    config: str
    seed: int
    estimates: dict[str, Estimate]

    @classmethod
    def open(cls, out: Path, config: PaperConfiguration, seed: int | None) -> Run:
        """The run of a directory, or a new one. InputError where the directory has another configuration or seed."""
        path = out / STATE
        if not path.exists():
            if out.exists() and (not out.is_dir() or any(out.iterdir())):
                raise InputError(f"{out} is there and holds no replication: give another --out")
            drawn = secrets.randbelow(2**31) if seed is None else seed
            return cls(out, config.name, drawn, {})
        try:
            body = json.loads(path.read_bytes())
            estimates = {str(key): Estimate(**own) for key, own in body["estimates"].items()}
            run = cls(out, str(body["config"]), int(body["seed"]), estimates)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise InputError(f"{path} cannot be read ({error!r:.80}): give another --out") from None
        if run.config != config.name:
            raise InputError(f"{out} holds a replication of {run.config}: give another --out for {config.name}")
        if seed not in (None, run.seed):
            raise InputError(f"{out} was begun with --seed {run.seed}, not {seed}: leave it out, or give another --out")
        return run

    def estimate(self, setup: Setup, questions: list[Question], n: int) -> Estimate:
        """What it will take, measured by a short run, which a later call does not repeat."""
        key = f"{len(questions)} problems x {n}, {setup.engine.name}, {setup.batch_size} at once"
        if key not in self.estimates:
            say("A short run of about two minutes measures this hardware.", err=True)
            self.estimates[key] = estimate(setup, questions, n, lambda line: say(f"  {line}", err=True))
            self.out.mkdir(parents=True, exist_ok=True)
            estimates = {key: asdict(one) for key, one in self.estimates.items()}
            body = {"config": self.config, "seed": self.seed, "estimates": estimates}
            write_file(self.out / STATE, json_text(body, indent=1) + "\n")
        return self.estimates[key]

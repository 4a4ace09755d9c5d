"""Routing for rollouts that exist already, as tokens or as texts.

run.py      teacher-forces each rollout through a model and writes a pool
sources.py  where the rollouts are read from: a JSONL file, or a pool
"""

from radmoe.engines.replay.run import Agreement, Replayed, ReplayWork, agreement, replay, replay_work

__all__ = ["Agreement", "ReplayWork", "Replayed", "agreement", "replay", "replay_work"]

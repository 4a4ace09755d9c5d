"""From a plan to a pool: the service that the command line, agents, the gateway and the workers of a cluster call.

plan.py   what is to be captured: problems, engine, sampling, and what is kept of each rollout
run.py    `capture_pool`: samples what the pool lacks, and keeps each rollout as soon as it is finished

Nothing here grades, and nothing here can see a gold answer: an import contract holds that.
"""

from radmoe.capture.plan import Plan
from radmoe.capture.run import Captured, CaptureInterrupted, capture_pool
from radmoe.engines.base import sampling_for
from radmoe.pool.work import Progress

__all__ = ["CaptureInterrupted", "Captured", "Plan", "Progress", "capture_pool", "sampling_for"]

"""The on-disk pool: rollouts with their routing, written once and read one window at a time (docs/format.md).

files.py       the one rule for what may be in a pool, and the file operations that keep to it
schema.py      names, versions and column types, and the JSON documents that describe a pool
tables.py      the tables of runs and labels
steps.py       the steps of trajectories in the table of runs
profile.py     what a pool keeps of each rollout
journal.py     the file in which a rollout is safe until its shard is sealed
columns.py     one column on disk
blocks.py      where the blocks of its chunks lie, and how some of them are decompressed
shard.py       the columns of some rollouts
writer.py      `PoolWriter`
work.py        what fills a pool: rollouts by name, and how far it is
hold.py        who may write to a pool
lease.py       who may write to a pool in object storage
stores.py      paths into object storage
completion.py  what happens to a pool as a whole: joining, completing, recovering it, deleting from it
reader.py      `Pool` and `open_pool`
fault.py       what a check reports
sense.py       whether what a pool says makes sense
verify.py      the check of every byte against what was written, and of its sense (`Pool.verify`)
merge.py       several pools made into one
"""

from radmoe.pool.fault import Fault
from radmoe.pool.merge import merge_pools
from radmoe.pool.profile import Profile
from radmoe.pool.reader import Pool, StoredRollout, open_pool
from radmoe.pool.writer import PoolWriter

__all__ = ["Fault", "Pool", "PoolWriter", "Profile", "StoredRollout", "merge_pools", "open_pool"]

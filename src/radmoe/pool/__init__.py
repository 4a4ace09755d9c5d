"""The on-disk pool: rollouts with their routing, written once, read by the window (docs/format.md).

schema.py      names, versions and column types, and the few file habits every part shares
profile.py     what a pool keeps of each rollout
journal.py     where a rollout is safe until its shard is sealed
columns.py     one column on disk; shard.py the columns of some rollouts
writer.py      `PoolWriter`; completion.py what happens to a pool as a whole
reader.py      `Pool` and `open_pool`
verify.py      every byte against what was written (`Pool.verify`)
merge.py       several pools as one
"""

from radmoe.pool.merge import merge_pools
from radmoe.pool.profile import Profile
from radmoe.pool.reader import Pool, StoredRollout, open_pool
from radmoe.pool.verify import Fault
from radmoe.pool.writer import PoolWriter

__all__ = ["Fault", "Pool", "PoolWriter", "Profile", "StoredRollout", "merge_pools", "open_pool"]

"""The on-disk pool: rollouts with their routing, written once, read by the window (docs/format.md)."""

from radmoe.pool.profile import Profile
from radmoe.pool.reader import Pool, open_pool
from radmoe.pool.verify import Fault, verify
from radmoe.pool.writer import PoolWriter, recover

__all__ = ["Fault", "Pool", "PoolWriter", "Profile", "open_pool", "recover", "verify"]

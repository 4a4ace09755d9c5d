"""The fixtures that the tests of radmoe and its companions share."""

from fixtures import _own_cache, made, pool_path, shared_pool
from object_stores import bucket, crooked, seaweed

__all__ = ["_own_cache", "bucket", "crooked", "made", "pool_path", "seaweed", "shared_pool"]

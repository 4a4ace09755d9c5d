"""The fixtures that the tests of radmoe and its companions share."""

from fixtures import _own_cache, made, pool_path, shared_pool

__all__ = ["_own_cache", "made", "pool_path", "shared_pool"]

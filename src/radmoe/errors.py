"""Every error radmoe raises on purpose.

RadmoeError
├── InputError            an argument or value that cannot be used
│   ├── ReadoutError      a readout or layer subset that does not parse or fit
│   ├── RolloutError      arrays of a rollout that contradict each other or the router
│   ├── KernelError       a matrix with NaN, infinite or negative entries
│   ├── GoldNotFound      problems that come without answers or tests: nothing can be graded
│   ├── VocabError        a tokenizer that cannot be turned into token bytes
│   └── MethodUnavailable a method that cannot be used on a problem: something it reads is not there
├── AnchorNotFound        no rollout carries the anchor: nothing can be selected
├── EngineError           a model that cannot be loaded, run or recorded
├── ClusterError          a Ray cluster that is not there, or whose workers are all lost
└── PoolError             a pool directory
    ├── PoolNotFound      there is no pool at this path
    ├── PoolIncomplete    a writer is still open or was killed: recover or resume
    ├── PoolBusy          another process writes to it
    ├── PoolCorrupt       bytes on disk contradict the pool's own description
    ├── PoolTooLarge      claims more than it can hold, or than the memory limit allows
    ├── PoolUnsafe        holds a link, a FIFO, a device, or a name that leads out of it
    ├── PoolVersion       written in another version of the format
    ├── PoolMismatch      a writer that does not fit the pool it appends to
    ├── PoolUnreachable   an object store that fails, refuses or does not answer
    └── PoolWriteError    the disk refused: full, read-only, gone

A message is one line: it names the value, what is allowed, and what to try next.
The command line prints it and exits with code 2.
"""


class RadmoeError(Exception):
    """Base class of every error that radmoe raises on purpose."""


class InputError(RadmoeError, ValueError):
    """A value that cannot be used."""


class ReadoutError(InputError):
    """A readout or layer subset that does not parse or does not fit the router."""


class RolloutError(InputError):
    """Arrays of a rollout that contradict each other or the router's shape."""


class KernelError(InputError):
    """A matrix that the kernels cannot compare."""


class GoldNotFound(InputError):
    """Problems that come without answers or tests."""


class VocabError(InputError):
    """A tokenizer that cannot be turned into token bytes."""


class MethodUnavailable(InputError):
    """A method cannot be used on a problem, because something that it reads is not there."""


class AnchorNotFound(RadmoeError):
    """No rollout carries the anchor, so nothing can be selected."""


class EngineError(RadmoeError):
    """A model that cannot be loaded, run or recorded."""


class ClusterError(RadmoeError):
    """A Ray cluster cannot be used, or all of its workers are lost."""


class PoolError(RadmoeError):
    """Something is wrong with a pool directory."""


class PoolNotFound(PoolError):
    """There is no pool at this path."""


class PoolIncomplete(PoolError):
    """A writer is still open, or was killed before it finished."""


class PoolBusy(PoolError):
    """Another process writes to the pool."""


class PoolCorrupt(PoolError):
    """Bytes on disk contradict the pool's own description."""


class PoolTooLarge(PoolCorrupt):
    """A file claims a size that its bytes do not account for and that the memory limit does not allow."""


class PoolUnsafe(PoolError):
    """The pool holds something that is not a plain file or directory within it."""


class PoolVersion(PoolError):
    """The pool was written in another version of the format."""


class PoolMismatch(PoolError):
    """The writer does not fit the pool it would append to."""


class PoolUnreachable(PoolError, OSError):
    """An object store failed, refused the credentials, or did not answer."""


class PoolWriteError(PoolError):
    """The disk refused a write."""

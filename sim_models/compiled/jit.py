"""How the models' inner loops are compiled.

Without reference counting: no kernel allocates, and passing the tuples of arrays that hold a run's state would
otherwise count references on every array of every call (a factor of twenty, measured on a GEMM without RTL).
numba's cache does not notice a change in a function that a cached one calls; sim_models/__init__.py therefore keeps
one cache per version of the sources.
"""

# numba's own interfaces for extensions carry no types.
# pyright: reportOptionalCall=false, reportAttributeAccessIssue=false, reportArgumentType=false, reportCallIssue=false

import contextlib
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from numba import njit
from numba.core import event
from numba.core.caching import FunctionCache

from ..user_cache import may_be_written


class _Cache(FunctionCache):
    """numba's, but what it cannot keep or read costs a compilation, not the run its result: a disk that takes no more,
    a file that was cut short."""

    def load_overload(self, sig, target_context):
        try:
            return super().load_overload(sig, target_context)
        except Exception:  # what damaged pickles raise has no end
            with contextlib.suppress(OSError):
                self.flush()  # written anew when it has been compiled
            return None

    def save_overload(self, sig, data):
        with contextlib.suppress(OSError):
            super().save_overload(sig, data)


def _kept(function: Callable, **options) -> Callable:
    dispatcher = njit(_nrt=False, **options)(function)
    if may_be_written(Path(os.environ["NUMBA_CACHE_DIR"])):
        with contextlib.suppress(RuntimeError):  # no folder takes files
            dispatcher._cache = _Cache(dispatcher.py_func)
    return dispatcher


@contextlib.contextmanager
def compile_times() -> Iterator[list[float]]:
    """The seconds of every compilation within, as they end; none for what the cache has."""
    seconds: list[float] = []
    with event.install_timer("numba:compile", seconds.append):
        yield seconds


compiled = _kept

#: Lets other threads run Python meanwhile.
unlocked = partial(_kept, nogil=True)

#: For small functions: a call passes the descriptor of every array among its arguments.
inlined = partial(_kept, forceinline=True)

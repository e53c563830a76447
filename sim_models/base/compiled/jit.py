"""Compilation of the models' inner loops.

Without reference counting: no kernel allocates, and passing the tuples of arrays that hold a run's state would
otherwise count references on every array of every call (a factor of twenty, measured on a GEMM without RTL).
numba's cache does not notice a change in a function that a cached one calls; there is therefore one cache per version
of the sources. Within it a function is found by the name of its module: another checkout or a new
installation of the same sources finds what was compiled before, and of processes that need the same function together
one compiles it.
"""

# numba's own interfaces for extensions carry no types.
# pyright: reportOptionalCall=false, reportAttributeAccessIssue=false, reportArgumentType=false, reportCallIssue=false

import contextlib
import fcntl
import hashlib
import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

from numba import njit
from numba.core import config, event, sigutils
from numba.core.caching import CompileResultCacheImpl, FunctionCache, UserProvidedCacheLocator
from numba.core.compiler_lock import global_compiler_lock

from t3sim.base.compiled import machine_code
from t3sim.base.compiled.by_reference import Descriptor, Reference
from t3sim.base.places import source_folders
from t3sim.base.streams import say
from t3sim.base.user_cache import cache_folder, make_folder, may_be_written, refuse_shared


def _folder() -> str:
    """Name the folder for compiled loops, one per version of the sources that are compiled or compile."""
    sources = hashlib.sha256(b"t3sim")
    for path in sorted({path for folder in source_folders().values() for path in folder.rglob("*.py")}):
        text = path.read_bytes()
        if b"jit import" in text or b"numba" in text:
            sources.update(text)
    folder = cache_folder() / f"loops-{sources.hexdigest()[:16]}"
    with contextlib.suppress(OSError):
        os.utime(folder)  # in use: the others go first when room is short
    return str(folder)


os.environ.setdefault("NUMBA_CACHE_DIR", _folder())  # processes that this one starts have the same
refuse_shared(Path(os.environ["NUMBA_CACHE_DIR"]), f"NUMBA_CACHE_DIR={os.environ['NUMBA_CACHE_DIR']}")
config.reload_config()  # numba may have been imported before
config.LOOP_VECTORIZE = config.SLP_VECTORIZE = 0  # loops are short and branch: vectors cost more than they save
config.OPT = type(config.OPT)(1)  # more takes twice as long, and runs are no faster for it


@cache
def _turns() -> int:
    """Open the file of which each byte is the lock of something that is compiled, or whose index is written."""
    folder = Path(os.environ["NUMBA_CACHE_DIR"])
    make_folder(folder)
    return os.open(folder / "turns", os.O_RDWR | os.O_CREAT, 0o666)


@contextlib.contextmanager
def _turn(*key: object) -> Iterator[None]:
    """Wait until no other process works on `key`. Where files have no locks nobody waits.

    Locks of a process are its own, whichever thread takes them: numba compiles in one thread at a time. No circle can
    wait: a function's turn is taken before those of what it calls.
    """
    text = re.sub(r"0x[0-9a-f]+", "", repr(key))  # addresses of functions, which differ between processes
    place = int.from_bytes(hashlib.sha256(text.encode()).digest()[:5])
    turns = None
    with contextlib.suppress(OSError):
        turns = _turns()
        fcntl.lockf(turns, fcntl.LOCK_EX, 1, place)
    try:
        yield
    finally:
        if turns is not None:
            with contextlib.suppress(OSError):
                fcntl.lockf(turns, fcntl.LOCK_UN, 1, place)


class _ByModule(UserProvidedCacheLocator):
    """numba's in a given folder, but with the module's name where numba puts the path of its file."""

    def __init__(self, py_func: Callable, py_file: str) -> None:
        super().__init__(py_func, py_file)
        self._cache_path = str(Path(os.environ["NUMBA_CACHE_DIR"]) / py_func.__module__)

    def ensure_cache_path(self) -> None:
        with contextlib.suppress(OSError):  # numba's would be as the umask says, and the next start refuse it
            make_folder(Path(self._cache_path))
        super().ensure_cache_path()


class _CachePlace(CompileResultCacheImpl):
    _locator_classes = [_ByModule]


class _Cache(FunctionCache):
    """numba's cache, but what it cannot keep or read costs a compilation, not the run its result.

    That may be a disk that takes no more, or a file that was cut short.
    """

    _impl_class = _CachePlace

    def load_overload(self, sig, target_context):
        try:
            return super().load_overload(sig, target_context)
        except Exception:  # what damaged pickles raise has no end
            with contextlib.suppress(OSError):
                self.flush()  # written anew when it has been compiled
            return None

    def save_overload(self, sig, data):
        data.library.get_pointer_to_function(data.fndesc.llvm_cfunc_wrapper_name)  # machine code, if there is a wrapper
        with contextlib.suppress(OSError), _turn(self._name):  # the index of all of a function's types is one file
            super().save_overload(sig, data)


machine_code.install()


def _kept(function: Callable, **options) -> Callable:
    dispatcher: Any = njit(**{"_nrt": False, "no_cfunc_wrapper": True, "error_model": "numpy", **options})(function)
    dispatcher.compile = partial(_compile, dispatcher)
    if may_be_written(Path(os.environ["NUMBA_CACHE_DIR"])):
        with contextlib.suppress(RuntimeError):  # no folder takes files
            dispatcher._cache = _Cache(dispatcher.py_func)
            dispatcher.compile = partial(_compile_once, dispatcher)
    return dispatcher


def _compile(dispatcher: Any, sig):
    """Compile a function for types, without ways in from Python and C where they have no such types.

    Each of them would hold all of the function again.
    """
    within = any(isinstance(kind, (Reference, Descriptor)) for kind in sigutils.normalize_signature(sig)[0])
    with global_compiler_lock:  # the options are the function's, whichever thread compiles it, for whichever types
        dispatcher.targetoptions["no_cpython_wrapper"] = within
        return type(dispatcher).compile(dispatcher, sig)


def _compile_once(dispatcher: Any, sig):
    """Compile a function for types, or take from the cache what another process has compiled meanwhile."""
    with _turn(dispatcher.py_func.__module__, dispatcher.py_func.__qualname__, sig):
        return _compile(dispatcher, sig)


_FEW = 60  #: functions compiled, from which on it is worth a line: those of a run are 250


class _Times(event.Listener):
    """Processor seconds of each thread's compilations; what others within need is part of the outermost."""

    def __init__(self) -> None:
        self.of_thread = threading.local()
        self.compiled = 0

    def on_start(self, event: event.Event) -> None:
        mine = vars(self.of_thread)
        self.compiled += 1
        if self.compiled == _FEW:
            say("the models' loops", "a minute or two")
        mine["depth"] = mine.get("depth", 0) + 1
        if mine["depth"] == 1:
            mine["started"] = time.thread_time()

    def on_end(self, event: event.Event) -> None:
        mine = vars(self.of_thread)
        mine["depth"] -= 1
        if mine["depth"] == 0:
            for seconds in mine.get("asked", ()):
                seconds.append(time.thread_time() - mine["started"])


#: Listens from the beginning: who comes and goes while another thread compiles would make numba pass over a listener.
_times = _Times()
event.register("numba:compile", _times)


@contextlib.contextmanager
def compile_times() -> Iterator[list[float]]:
    """Give the processor seconds of this thread's compilations within the block; none for what the cache has."""
    seconds: list[float] = []
    listeners = vars(_times.of_thread).setdefault("asked", [])
    listeners.append(seconds)
    try:
        yield seconds
    finally:
        listeners.pop()


compiled = _kept

#: Lets other threads run Python meanwhile.
unlocked = partial(_kept, nogil=True)

#: For what is called from one place: its statements become the caller's, so that it is not compiled by itself before.
merged = partial(_kept, inline="always")

#: For small functions: a call passes the descriptor of every array among its arguments.
inlined = partial(_kept, forceinline=True)

#: For what is large and called from one place: it has the host's registers for itself.
whole = partial(_kept, forceinline=False)

#: For what compiled code calls by its address (`hooks.address_of`).
by_address = partial(_kept, no_cfunc_wrapper=False)

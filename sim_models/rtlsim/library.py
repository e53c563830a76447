"""A compiled design, opened."""

import ctypes
from pathlib import Path

from t3sim.rtlsim.port_map import PortMap

_POINTER = ctypes.c_void_p
#: numba takes a handle as an integer, so handles are integers everywhere.
_HANDLE = ctypes.c_size_t


class Library:
    """The C functions of one compiled design; any number of instances can be made from it.

    `step`, `eval` and `reset` are ctypes functions of a handle: numba compiles calls of them when they are passed to an
    `@njit` function as an argument.
    """

    def __init__(self, path: Path, ports: PortMap) -> None:
        self.path = path
        self.ports = ports
        self._shared = ctypes.CDLL(str(path))
        self.new = self._function("t3_new", _HANDLE, _POINTER, _POINTER)
        self.free = self._function("t3_free", None, _HANDLE)
        self.reset = self._function("t3_reset", None, _HANDLE)
        self.evaluate_all = self._function("t3_evaluate_all", None, _HANDLE, ctypes.c_int)
        self.asleep = self._function("t3_asleep", ctypes.c_int, _HANDLE)
        self.step = self._function("t3_step", None, _HANDLE)
        self.eval = self._function("t3_eval", None, _HANDLE)
        self.run = self._function("t3_run", ctypes.c_uint64, _HANDLE, _POINTER, _POINTER, ctypes.c_int64)
        self.self_test = self._function("t3_self_test", ctypes.c_int64, ctypes.c_int64)

    def _function(self, name: str, result, *arguments):
        function = self._shared[name]
        function.restype, function.argtypes = result, arguments
        return function

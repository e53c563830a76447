"""The compiled near-memory ALU, driven with numpy arrays of columns."""

import numpy as np

from t3sim.base.errors import Failure
from t3sim.cosim.component import build_component
from t3sim.rtl.channel.nmc_alu import AluDtype, AluOp, NmcAlu
from t3sim.rtl.channel.wide_alu import WideAlu, WideOp
from t3sim.rtl.geometry import ChannelGeometry, Geometry
from t3sim.rtlsim.simulator import Simulator

DTYPES = {dtype.name.lower(): dtype.value for dtype in AluDtype}
OPERATIONS = {op.name.lower(): op.value for op in AluOp}
WIDE_OPERATIONS = {op.name.lower(): op.value for op in WideOp}
COLUMN_BYTES = 32


def compiled_alu() -> Simulator:
    """Make a fresh instance, for one column at a time."""
    return Simulator(build_component(lambda: NmcAlu(COLUMN_BYTES), "nmc_alu", COLUMN_BYTES))


def compiled_wide_alu(sums: tuple[str, ...]) -> Simulator:
    """Make a fresh instance that has these sums, for one column at a time."""
    names = "+".join(sums)
    geometry = Geometry(channel=ChannelGeometry(sums=names))
    return Simulator(build_component(lambda: WideAlu(geometry, COLUMN_BYTES), "wide_alu", (names, COLUMN_BYTES)))


class CompiledAlu:
    """One column per cycle, the consumer always ready; columns are rows of 32-bit words."""

    COLUMN_BYTES = COLUMN_BYTES

    def __init__(self):
        self._backend = compiled_alu()
        self._ports = self._backend.ports
        self._request = None
        self.cycles = 0

    def load(self, new: np.ndarray, dtype: str, store: bool = False) -> None:
        """Take the `new` columns of the next runs."""
        payload = self._ports.inputs["operands.payload"]
        request = store, dtype, len(new)
        if request != self._request:
            self._request = request
            self._stimulus = np.zeros((len(new) + NmcAlu.LATENCY, self._ports.input_words), np.uint64)
            self._stimulus[:-NmcAlu.LATENCY, self._ports.inputs["operands.valid"].offset] = 1
            self._stimulus[:, self._ports.inputs["result.ready"].offset] = 1
            for name, value in (("op", (AluOp.STORE if store else AluOp.ADD).value), ("dtype", DTYPES[dtype])):
                bit = payload.fields[name].lsb
                self._stimulus[:, payload.offset + bit // 64] |= np.uint64(value << bit % 64)
        self._stimulus[:-NmcAlu.LATENCY, self._words(payload, "new")] = new.view(np.uint64)

    def run(self, old: np.ndarray) -> np.ndarray:
        """Combine the loaded columns with `old`: one column for all, or one for each."""
        words = self._words(self._ports.inputs["operands.payload"], "old")
        self._stimulus[:-NmcAlu.LATENCY, words] = old.view(np.uint64)
        out = self._backend.run(self._stimulus)
        self.cycles += len(out)
        # A row of outputs shows what the cycle's rising edge brought.
        first = NmcAlu.LATENCY - 1
        valid = out[:, self._ports.outputs["result.valid"].offset]
        ready = out[:, self._ports.outputs["operands.ready"].offset]
        if valid[:first].any() or not valid[first:-1].all() or valid[-1] or not ready.all():
            raise Failure("the near-memory ALU lost, delayed or invented a column")
        words = self._words(self._ports.outputs["result.payload"], "column")
        return np.ascontiguousarray(out[first:-1, words]).view(np.uint32)

    def _words(self, port, field: str) -> slice:
        start = port.offset + port.fields[field].lsb // 64
        return slice(start, start + self.COLUMN_BYTES // 8)

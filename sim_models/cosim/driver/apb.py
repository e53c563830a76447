"""A bus master for the configuration bus, on any backend: what the driver's register accesses become."""

from t3sim.base.errors import Failure

_PATIENCE_CYCLES = 64


class BusError(Failure):
    """A transfer that the hardware refused or did not answer."""


class ApbMaster:
    """APB transfers through a backend's packed ports; the other inputs keep their values meanwhile."""

    def __init__(self, backend) -> None:
        self._backend = backend
        port = backend.ports.port
        self._in = {name: port(f"apb.{name}").offset for name in ("paddr", "psel", "penable", "pwrite", "pwdata")}
        self._out = {name: port(f"apb.{name}").offset for name in ("prdata", "pready", "pslverr")}
        self.cycles = 0  #: spent on the bus

    def write(self, offset: int, value: int) -> None:
        """Write a 32-bit register. Raises BusError."""
        self._transfer(offset, 1, value)

    def read(self, offset: int) -> int:
        """Read a 32-bit register. Raises BusError."""
        return self._transfer(offset, 0, 0)

    def _transfer(self, offset: int, write: int, value: int) -> int:
        inputs, outputs = self._backend.inputs, self._backend.outputs
        for name, word in (("paddr", offset), ("psel", 1), ("penable", 0), ("pwrite", write), ("pwdata", value)):
            inputs[self._in[name]] = word
        self._step()
        inputs[self._in["penable"]] = 1
        for _ in range(_PATIENCE_CYCLES):
            self._step()
            if outputs[self._out["pready"]]:
                break
        else:
            raise BusError(f"register {offset:#05x}: no answer for {_PATIENCE_CYCLES} cycles")
        data, refused = int(outputs[self._out["prdata"]]), bool(outputs[self._out["pslverr"]])
        self._step()  # the transfer ends in the cycle that shows pready
        inputs[self._in["psel"]] = 0
        inputs[self._in["penable"]] = 0
        if refused:
            raise BusError(f"register {offset:#05x}: {'write' if write else 'read'} refused")
        return data

    def _step(self) -> None:
        self._backend.step()
        self.cycles += 1

"""A block's properties against its mutants: runs from reset that violate a claim."""

import tempfile
from pathlib import Path

from amaranth.hdl import Const, Elaboratable, Fragment, Instance, Value
from amaranth.lib import data, wiring

from t3sim.base.cache import digest
from t3sim.rtl.blocks import BLOCKS
from t3sim.rtl.geometry import Geometry
from t3sim.testbenches.formal.campaign import PROPERTIES
from t3sim.testbenches.formal.property import Property
from t3sim.testbenches.formal.solver import check
from t3sim.testbenches.formal.spec import Spec
from t3sim.testbenches.geometries import GEOMETRIES
from t3sim.testbenches.mutation.model import SELECT, SELECT_BITS, Model, Mutant


class _OfNetlist(Spec):
    """The same statements about a netlist: its ports are the design's.

    What a specification reads from inside the design is free. Only claims can be asserted of it, for only they are
    about ports. Inputs that only its testbench knows are 0.
    """

    def __init__(self, design: wiring.Component, model: Model, number: int, claim: str) -> None:
        self._number, self._model = number, model
        super().__init__(design, only=claim)

    def _hardware(self) -> Elaboratable:
        ports = {}
        for path, member, value in self.design.signature.flatten(self.design):
            if len(Value.cast(value)):
                ports[("o_" if member.flow == wiring.Out else "i_") + "__".join(map(str, path))] = Value.cast(value)
        ports |= {f"i_{name}": signal for name, signal in (("clk", self._sync.clk), ("rst", self._sync.rst))}
        further = {f"i_{port.verilog}": Const(0, port.width) for port in self._model.ports.inputs.values()}
        return Instance(self._model.block, **further | ports, **{f"i_{SELECT}": Const(self._number, SELECT_BITS)})

    def inside(self, name: str, block: wiring.Component | None = None):
        found = super().inside(name, block)
        return self.any_sequence(found.shape()) if isinstance(found, Value | data.View) else found

    def peek(self, memory, address):
        return self.any_sequence(memory.shape)


def prove(model: Model, geometry: Geometry, mutant: Mutant, folder: Path, seconds: int) -> str | None:
    """Return the first claim that a run of the mutant violates; None if there is none.

    A claim counts if the block without a mutant keeps it in runs of the same length. `folder` keeps what the solver
    said.
    """
    for item in PROPERTIES:
        if not _speaks_of(item, model.block, geometry):
            continue
        names = _OfNetlist(BLOCKS[model.block](geometry), model, 0, "")
        item.specify(names, geometry)
        Fragment.get(names.m, None)  # it is used: Amaranth warns of what is not
        for claim in sorted(names.claims):
            if all(_verdict(model, geometry, item, claim, number, folder, seconds) == verdict
                   for number, verdict in ((mutant.number, "fail"), (0, "pass"))):
                return f"{item.name}: {claim}"
    return None


def _speaks_of(item: Property, block: str, geometry: Geometry) -> bool:
    """Say whether a property is about the block.

    What a specification reads inside a Tracker is not there with another protection.
    """
    shape = GEOMETRIES[item.geometry] if isinstance(item.geometry, str) else item.geometry
    return item.block == block and item.build is None and shape.tracker.protection == geometry.tracker.protection


def _verdict(model: Model, geometry: Geometry, item: Property, claim: str, number: int, folder: Path,
             seconds: int) -> str:
    name = f"{item.slug}-{digest(claim)}-{number}"
    kept = folder / f"{name}.txt"
    if not kept.exists():
        spec = _OfNetlist(BLOCKS[model.block](geometry), model, number, claim)
        item.specify(spec, geometry)
        design = spec.rtlil() + (model.folder / "whole.il").read_text()
        # A folder of its own: two mutants may ask for the unchanged block's verdict at the same time.
        with tempfile.TemporaryDirectory() as work:
            verdict = check(design, Path(work) / name, mode="bmc", depth=item.searches[0].depth, timeout_s=seconds)
        folder.mkdir(parents=True, exist_ok=True)
        kept.write_text(verdict.status)
    return kept.read_text()

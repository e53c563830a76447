"""The near-memory ALU's RTL as compiled loops use it, a column at a time."""

from functools import reduce
from typing import NamedTuple

import numpy as np

from t3sim.base.compiled.jit import compiled
from t3sim.cosim.nmc_alu import DTYPES, OPERATIONS
from t3sim.machine.formats import Format
from t3sim.rtlsim.simulator import Simulator

_PATIENCE_CYCLES = 16


class Alu(NamedTuple):
    """Word offsets in its input and output arrays, and how it is stepped."""

    valid: int
    old: int
    new: int
    control: int  # what is done, in one word
    result_valid: int
    result: int
    step: object  # C function of the handle
    handle: int
    inputs: np.ndarray
    outputs: np.ndarray


def make_alu(alu: Simulator, dtype: str, operation: str = "add") -> Alu:
    """Return an ALU for numbers of a format (`DTYPES`) and one of `OPERATIONS`, whose results are always taken."""
    configured = alu_of(alu)
    configured.inputs[configured.control] = control(alu, dtype=DTYPES[dtype], op=OPERATIONS[operation])
    return configured


def alu_of(alu: Simulator) -> Alu:
    """Return an ALU whose results are always taken."""
    ports = alu.ports
    operands, result = ports.inputs["operands.payload"], ports.outputs["result.payload"]
    alu.inputs[ports.inputs["result.ready"].offset] = 1
    return Alu(ports.inputs["operands.valid"].offset, operands.offset + operands.fields["old"].lsb // 64,
               operands.offset + operands.fields["new"].lsb // 64, operands.offset + operands.fields["op"].lsb // 64,
               ports.outputs["result.valid"].offset,
               result.offset + result.fields["column"].lsb // 64, alu.design.step, alu.handle,
               alu.inputs.view(np.int64), alu.outputs.view(np.int64))


def sum_in_turn(values: np.ndarray, turns: np.ndarray, number: Format) -> np.ndarray:
    """Add up `values[part, ...]`, each element's in the order of `turns`, which has the shape of `values`."""
    ordered = np.take_along_axis(values, turns, axis=0)
    return reduce(lambda total, part: number.add(part, total), ordered)


def control(alu: Simulator, **fields: int) -> int:
    """Return the word that asks an ALU for an operation, by the fields of its operands."""
    layout = alu.ports.inputs["operands.payload"].fields
    return sum(value << layout[name].lsb % 64 for name, value in fields.items())


@compiled
def add(alu: Alu) -> bool:
    """Let the RTL combine the operands in its inputs; False: no result came."""
    alu.inputs[alu.valid] = 1
    alu.step(alu.handle)
    alu.inputs[alu.valid] = 0
    for _ in range(_PATIENCE_CYCLES):
        if alu.outputs[alu.result_valid]:
            return True
        alu.step(alu.handle)
    return False

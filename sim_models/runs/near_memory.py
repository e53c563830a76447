"""The near-memory ALU's RTL as compiled loops use it, a column at a time."""

from typing import NamedTuple

import numpy as np

from ..compiled.jit import compiled
from ..cosim.compiled import CompiledBackend
from ..cosim.nmc_alu import DTYPES

_PATIENCE_CYCLES = 16


class Alu(NamedTuple):
    """Word offsets in its input and output arrays, and how it is stepped."""

    valid: int
    old: int
    new: int
    result_valid: int
    result: int
    step: object  # C function of the handle
    handle: int
    inputs: np.ndarray
    outputs: np.ndarray


def make_alu(alu: CompiledBackend, dtype: str) -> Alu:
    """Return an ALU that adds numbers of a format (`DTYPES`), and whose results are always taken."""
    ports = alu.ports
    operands, result = ports.inputs["operands.payload"], ports.outputs["result.payload"]
    bit = operands.fields["dtype"].lsb  # the other field, op, is 0: ADD
    alu.inputs[operands.offset + bit // 64] = DTYPES[dtype] << bit % 64
    alu.inputs[ports.inputs["result.ready"].offset] = 1
    return Alu(ports.inputs["operands.valid"].offset, operands.offset + operands.fields["old"].lsb // 64,
               operands.offset + operands.fields["new"].lsb // 64, ports.outputs["result.valid"].offset,
               result.offset + result.fields["column"].lsb // 64, alu.library.step, alu.handle,
               alu.inputs.view(np.int64), alu.outputs.view(np.int64))


@compiled
def add(alu):
    """Let the RTL add the operands in its inputs; False: no result came."""
    alu.inputs[alu.valid] = 1
    alu.step(alu.handle)
    alu.inputs[alu.valid] = 0
    for _ in range(_PATIENCE_CYCLES):
        if alu.outputs[alu.result_valid]:
            return True
        alu.step(alu.handle)
    return False

"""Bit masks over banks: index of the lowest set bit, as one machine instruction."""

from llvmlite import ir
from numba import types
from numba.extending import intrinsic


@intrinsic
def lowest_bit(typing_context, mask):
    """Index of the lowest set bit of a non-zero int64 `mask`."""
    def emit(context, builder, signature, arguments):
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    if mask != types.int64:
        return None
    return types.int64(types.int64), emit

"""Arrays by their address, so that a compiled loop takes any number of them as one array."""

from llvmlite import ir
from numba import types

from t3sim.base.compiled.by_reference import intrinsic


@intrinsic
def words_at(typing_context, address):
    """Return a pointer to 64-bit words at an address, which is read and written by element.

    Whoever gives it keeps them alive.
    """
    def emit(context, builder, signature, arguments):
        return builder.inttoptr(arguments[0], ir.IntType(64).as_pointer())
    return types.CPointer(types.int64)(types.intp), emit

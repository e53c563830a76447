"""Functions that a compiled loop calls by address, so that the loop is compiled once whatever they are and look at.

A function is compiled for the types of what it looks at, and kept, by itself. The loop hands it references
(`by_reference`) to what it steps, and one to the caller's own state, which lies in memory that Python keeps.
"""

# numba's own interfaces for extensions carry no types.
# pyright: reportOptionalCall=false, reportAttributeAccessIssue=false, reportArgumentType=false, reportCallIssue=false

from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import int64, typeof, types
from numba.core import cgutils
from numba.core.registry import cpu_target

from t3sim.base.compiled.by_reference import Reference, intrinsic
from t3sim.base.compiled.jit import compiled


class LaidDown(NamedTuple):
    """A named tuple in memory, as `by_reference` would lay it down; what it refers to has to be kept, too."""

    kind: Reference
    memory: np.ndarray

    @property
    def address(self) -> int:
        return self.memory.ctypes.data


def lay_down(state: tuple) -> LaidDown:
    """Copy a named tuple into memory of its own."""
    kind = typeof(state)
    context = cpu_target.target_context
    memory = np.empty(context.get_abi_sizeof(context.get_data_type(kind)), np.uint8)
    _store(state, memory.ctypes.data)
    return LaidDown(Reference(kind), memory)


def address_of(function: Any, *looks_at: types.Type) -> int:
    """Return the address of a `by_address` function for references of these types, a device and a cycle."""
    signature = (*looks_at, int64, int64)
    function.compile(signature)
    of = function.overloads[signature]
    return of.library.get_pointer_to_function(of.fndesc.llvm_cfunc_wrapper_name)


@intrinsic
def _put(typing_context, state, address):
    def emit(context, builder, signature, arguments):
        kind = signature.args[0]
        context.pack_value(builder, kind, arguments[0],
                           builder.inttoptr(arguments[1], context.get_data_type(kind).as_pointer()))
        return context.get_dummy_value()

    return types.void(state, types.intp), emit


@compiled
def _store(state: tuple, address: int) -> None:
    _put(state, address)


@intrinsic
def call_at(typing_context, address, state, sim, kernel, hardware, device, now):
    """Call what `address_of` gave; `state`: the address of its own state."""
    def emit(context, builder, signature, arguments):
        function, own, *looked_at, device, now = arguments
        anything = cgutils.voidptr_t
        pointers = [builder.inttoptr(own, anything), *(builder.bitcast(one, anything) for one in looked_at)]
        kind = ir.FunctionType(anything, [*[anything] * len(pointers), device.type, now.type])
        builder.call(builder.inttoptr(function, kind.as_pointer()), [*pointers, device, now])
        return context.get_dummy_value()

    return types.void(types.intp, types.intp, sim, kernel, hardware, types.int64, types.int64), emit

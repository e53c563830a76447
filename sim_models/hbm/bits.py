"""Machine-level helpers for the compiled channel model.

Numba counts references to an array that it takes out of a record, and checks every index for being negative. In a
function of a few dozen nanoseconds that is most of the time, so tables inside a record are read and written with `item`
and `put`, which are one load and one store. Neither checks the index.
"""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic


@intrinsic
def lowest_bit(typing_context, mask):
    """Index of the lowest set bit of a non-zero int64 `mask`."""
    def emit(context, builder, signature, arguments):
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    if mask != types.int64:
        return None
    return types.int64(types.int64), emit


def _table_type(record, name):
    """Element type of the one-dimensional table `name` of a record type, or None."""
    if not isinstance(record, types.Record) or not isinstance(name, types.StringLiteral):
        return None
    table = record.typeof(name.literal_value)
    return table.dtype if isinstance(table, types.NestedArray) and table.ndim == 1 else None


def _element_pointer(context, builder, record, name, data, index, element):
    address = cgutils.get_record_member(builder, data, record.offset(name.literal_value),
                                        context.get_data_type(element))
    return builder.gep(address, [index])


@intrinsic(prefer_literal=True)
def item(typing_context, record, name, index):
    """`record.name[index]` for an integer table, as an int64."""
    element = _table_type(record, name)
    if element is None:
        return None

    def emit(context, builder, signature, arguments):
        pointer = _element_pointer(context, builder, record, name, arguments[0], arguments[2], element)
        return context.cast(builder, builder.load(pointer), element, types.int64)

    return types.int64(record, name, types.int64), emit


@intrinsic(prefer_literal=True)
def put(typing_context, record, name, index, value):
    """`record.name[index] = value` for an integer table; an int64 value is cut to the table's width."""
    element = _table_type(record, name)
    if element is None:
        return None

    def emit(context, builder, signature, arguments):
        pointer = _element_pointer(context, builder, record, name, arguments[0], arguments[2], element)
        builder.store(context.cast(builder, arguments[3], types.int64, element), pointer)
        return context.get_dummy_value()

    return types.void(record, name, types.int64, types.int64), emit

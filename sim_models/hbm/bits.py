"""Machine-level helpers for the compiled channel model.

Numba counts references to an array that it takes out of a record, and checks every index for being negative. In a
function of a few dozen nanoseconds that is most of the time, so tables inside a record are read and written with `item`
and `put`, which are one load and one store. Neither checks the index.
"""

from llvmlite import ir
from numba import types
from numba.core import cgutils

from t3sim.compiled.intrinsics import intrinsic


@intrinsic
def lowest_bit(typing_context, mask):
    """Return the index of the lowest set bit of a non-zero int64 `mask`."""
    def emit(context, builder, signature, arguments):
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    if mask != types.int64:
        return None
    return types.int64(types.int64), emit


def _table_type(record, name):
    """Return the element type of the one-dimensional table `name` of a record type, or None."""
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
    """Read `record.name[index]` of an integer table, as an int64."""
    element = _table_type(record, name)
    if element is None:
        return None

    def emit(context, builder, signature, arguments):
        pointer = _element_pointer(context, builder, record, name, arguments[0], arguments[2], element)
        return context.cast(builder, builder.load(pointer), element, types.int64)

    return types.int64(record, name, types.int64), emit


@intrinsic(prefer_literal=True)
def put(typing_context, record, name, index, value):
    """Set `record.name[index] = value` in an integer table; an int64 value is cut to the table's width."""
    element = _table_type(record, name)
    if element is None:
        return None

    def emit(context, builder, signature, arguments):
        pointer = _element_pointer(context, builder, record, name, arguments[0], arguments[2], element)
        builder.store(context.cast(builder, arguments[3], types.int64, element), pointer)
        return context.get_dummy_value()

    return types.void(record, name, types.int64, types.int64), emit


SCAN = 16  #: places that `oldest_ready` looks at together


@intrinsic(prefer_literal=True)
def oldest_ready(typing_context, record, order_name, order_at, ready_name, ready_at, other_name, other_at, others,
                 candidates, cycle):
    """Return (lowest order of the candidates ready by `cycle`, earliest ready of all of them).

    The lowest order is the largest int64 if none is ready. It looks at `SCAN` places at once, without a branch: orders
    are `record.order_name[order_at + i]`, ready is `record.ready_name[ready_at + i]`, or `record.other_name[other_at +
    i]` where bit i of the mask `others` is set, and bit i of `candidates` says whether place i takes part. Loops of
    this kind are unrolled before LLVM vectorises.
    """
    tables = {name: _table_type(record, name) for name in (order_name, ready_name, other_name)}
    if any(element != types.int64 for element in tables.values()):
        return None

    def emit(context, builder, signature, arguments):
        vector = ir.VectorType(ir.IntType(64), SCAN)
        flags = ir.VectorType(ir.IntType(1), SCAN)
        none = ir.Constant(vector, [ir.Constant(ir.IntType(64), (1 << 63) - 1)] * SCAN)

        def table(name, at):
            pointer = _element_pointer(context, builder, record, name, arguments[0], arguments[at], types.int64)
            return builder.load(builder.bitcast(pointer, vector.as_pointer()), align=8)

        def mask(at):
            return builder.bitcast(builder.trunc(arguments[at], ir.IntType(SCAN)), flags)

        def lowest(values):
            return builder.call(cgutils.get_or_insert_function(
                builder.module, ir.FunctionType(ir.IntType(64), [vector]), f"llvm.vector.reduce.smin.v{SCAN}i64"),
                [values])

        ready = builder.select(mask(7), table(other_name, 6), table(ready_name, 4))
        ready = builder.select(mask(8), ready, none)
        by = builder.insert_element(ir.Constant(vector, ir.Undefined), arguments[9], ir.Constant(ir.IntType(32), 0))
        by = builder.shuffle_vector(by, ir.Constant(vector, ir.Undefined),
                                    ir.Constant(ir.VectorType(ir.IntType(32), SCAN), [0] * SCAN))
        orders = builder.select(builder.icmp_signed("<=", ready, by), table(order_name, 2), none)
        return context.make_tuple(builder, signature.return_type, [lowest(orders), lowest(ready)])

    number = types.int64
    return types.UniTuple(number, 2)(record, order_name, number, ready_name, number, other_name, number, number, number,
                                     number), emit

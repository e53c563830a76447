"""Machine-level helpers for the compiled channel model.

Numba counts references to an array that it takes out of a record, and checks every index for being negative. In a
function of a few dozen nanoseconds that is most of the time, so tables inside a record are read and written with `item`
and `put`, which are one load and one store. Neither checks the index.
"""

from llvmlite import ir
from numba import types
from numba.core import cgutils

from t3sim.base.compiled.by_reference import intrinsic


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
GROUP_SCAN = 8  #: places that `not_before` writes together

_WORD = ir.IntType(64)
_NEVER = (1 << 63) - 1


def _places(context, builder, record, name, data, index, places):
    """Return a pointer to several neighbouring elements of a table of int64."""
    pointer = _element_pointer(context, builder, record, name, data, index, types.int64)
    return builder.bitcast(pointer, ir.VectorType(_WORD, places).as_pointer())


def _each(builder, value, places):
    """Repeat a number in each place."""
    vector, undefined = ir.VectorType(_WORD, places), ir.Constant(ir.VectorType(_WORD, places), ir.Undefined)
    one = builder.insert_element(ir.Constant(vector, ir.Undefined), value, ir.Constant(ir.IntType(32), 0))
    return builder.shuffle_vector(one, undefined, ir.Constant(ir.VectorType(ir.IntType(32), places), [0] * places))


def _ready(context, builder, signature, arguments):
    """Return when each place is ready, the largest int64 if it takes no part."""
    record, first, _, other = signature.args[:4]
    data, _, at, _, other_at, others, candidates = arguments[:7]
    flags = ir.VectorType(ir.IntType(1), SCAN)

    def mask(value):
        return builder.bitcast(builder.trunc(value, ir.IntType(SCAN)), flags)

    first, other = (builder.load(_places(context, builder, record, name, data, index, SCAN), align=8)
                    for name, index in ((first, at), (other, other_at)))
    none = ir.Constant(first.type, [ir.Constant(_WORD, _NEVER)] * SCAN)
    return builder.select(mask(candidates), builder.select(mask(others), other, first), none), none


def _lowest(builder, values):
    return builder.call(cgutils.get_or_insert_function(
        builder.module, ir.FunctionType(_WORD, [values.type]), f"llvm.vector.reduce.smin.v{SCAN}i64"), [values])


@intrinsic(prefer_literal=True)
def earliest_ready(typing_context, record, ready_name, ready_at, other_name, other_at, others, candidates):
    """Return the earliest cycle in which a candidate is ready, the largest int64 if there is none.

    It looks at `SCAN` places at once, without a branch: ready is `record.ready_name[ready_at + i]`, or
    `record.other_name[other_at + i]` where bit i of the mask `others` is set, and bit i of `candidates` says whether
    place i takes part. Loops of this kind are unrolled before LLVM vectorises.
    """
    if any(_table_type(record, name) != types.int64 for name in (ready_name, other_name)):
        return None

    def emit(context, builder, signature, arguments):
        return _lowest(builder, _ready(context, builder, signature, arguments)[0])

    number = types.int64
    return number(record, ready_name, number, other_name, number, number, number), emit


@intrinsic(prefer_literal=True)
def oldest_ready(typing_context, record, ready_name, ready_at, other_name, other_at, others, candidates, order_name,
                 order_at, cycle):
    """Return the lowest order of the candidates that are ready by `cycle`, the largest int64 if none is.

    Orders are `record.order_name[order_at + i]`; the rest as for `earliest_ready`.
    """
    if any(_table_type(record, name) != types.int64 for name in (ready_name, other_name, order_name)):
        return None

    def emit(context, builder, signature, arguments):
        ready, none = _ready(context, builder, signature, arguments)
        orders = builder.load(_places(context, builder, record, signature.args[7], arguments[0], arguments[8], SCAN),
                              align=8)
        return _lowest(builder, builder.select(
            builder.icmp_signed("<=", ready, _each(builder, arguments[9], SCAN)), orders, none))

    number = types.int64
    return number(record, ready_name, number, other_name, number, number, number, order_name, number, number), emit


@intrinsic(prefer_literal=True)
def not_before(typing_context, record, name, first, count, cycle):
    """Raise the first `count` of `GROUP_SCAN` places of a table, from `first` on, to `cycle` where they are lower."""
    if _table_type(record, name) != types.int64:
        return None

    def emit(context, builder, signature, arguments):
        data, _, first, count, cycle = arguments
        pointer = _places(context, builder, record, name, data, first, GROUP_SCAN)
        held = builder.load(pointer, align=8)
        cycles = _each(builder, cycle, GROUP_SCAN)
        within = builder.icmp_signed("<", ir.Constant(held.type, list(range(GROUP_SCAN))),
                                     _each(builder, count, GROUP_SCAN))
        raised = builder.and_(within, builder.icmp_signed("<", held, cycles))
        builder.store(builder.select(raised, cycles, held), pointer, align=8)
        return context.get_dummy_value()

    number = types.int64
    return types.void(record, name, number, number, number), emit

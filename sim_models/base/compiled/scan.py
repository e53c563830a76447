"""Several neighbouring elements of an array looked at together, without a branch for each.

LLVM makes no vectors of the models' loops by itself: most of them are short and branch. Arrays are given by reference
and lie without gaps; those of `aligned_zeros` may be read beyond their end.
"""

# numba's own interfaces for extensions carry no types.
# pyright: reportOptionalCall=false, reportAttributeAccessIssue=false, reportArgumentType=false, reportCallIssue=false

from llvmlite import ir
from numba import types
from numba.core import cgutils

from t3sim.base.compiled.by_reference import Descriptor, element_of, index_type, intrinsic

PLACES = 16  #: elements that are looked at together

_WORD = ir.IntType(64)
_FLAGS = ir.VectorType(ir.IntType(1), PLACES)


def _vector(context, builder, table, value, index_type, index):
    """Load elements from an index on."""
    pointer = element_of(context, builder, table, value, index_type, index)
    kind = ir.VectorType(pointer.type.pointee, PLACES)
    return builder.load(builder.bitcast(pointer, kind.as_pointer()), align=1)


def _each(builder, value):
    """Repeat a value in each place."""
    kind = ir.VectorType(value.type, PLACES)
    one = builder.insert_element(ir.Constant(kind, ir.Undefined), value, ir.Constant(ir.IntType(32), 0))
    return builder.shuffle_vector(one, ir.Constant(kind, ir.Undefined),
                                  ir.Constant(ir.VectorType(ir.IntType(32), PLACES), [0] * PLACES))


def _numbers(kind):
    return ir.Constant(ir.VectorType(kind, PLACES), list(range(PLACES)))


def _mask(builder, flags):
    return builder.zext(builder.bitcast(flags, ir.IntType(PLACES)), _WORD)


def _lowest(builder, values):
    function = cgutils.get_or_insert_function(
        builder.module, ir.FunctionType(_WORD, [values.type]), f"llvm.vector.reduce.smin.v{PLACES}i64")
    return builder.call(function, [values])


def _holds(table, element, index):
    return isinstance(table, Descriptor) and table.array.dtype == element and index_type(table, index) is not None


@intrinsic
def lowest_bit(typing_context, mask):
    """Return the index of the lowest set bit of a non-zero int64 `mask`."""
    def emit(context, builder, signature, arguments):
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    if mask != types.int64:
        return None
    return types.int64(types.int64), emit


@intrinsic
def at_most(typing_context, table, index, bound, count):
    """Return the mask of the first `count` places from `table[index]` on, of int64, that are at most `bound`."""
    if not _holds(table, types.int64, index):
        return None

    def emit(context, builder, signature, arguments):
        values = _vector(context, builder, *signature.args[:1], arguments[0], signature.args[1], arguments[1])
        small = builder.icmp_signed("<=", values, _each(builder, arguments[2]))
        there = builder.icmp_signed("<", _numbers(_WORD), _each(builder, arguments[3]))
        return _mask(builder, builder.and_(small, there))

    return types.int64(table, index_type(table, index), types.int64, types.int64), emit


@intrinsic
def lowest(typing_context, table, index, count, none):
    """Return the lowest of the first `count` places from `table[index]` on, of int64, and of `none`."""
    if not _holds(table, types.int64, index):
        return None

    def emit(context, builder, signature, arguments):
        values = _vector(context, builder, *signature.args[:1], arguments[0], signature.args[1], arguments[1])
        there = builder.icmp_signed("<", _numbers(_WORD), _each(builder, arguments[2]))
        found = _lowest(builder, builder.select(there, values, _each(builder, arguments[3])))
        return builder.select(builder.icmp_signed("<", found, arguments[3]), found, arguments[3])

    return types.int64(table, index_type(table, index), types.int64, types.int64), emit


@intrinsic
def equal(typing_context, table, index, wanted):
    """Return the mask of places, from `table[index]` on, of int32, that are `wanted`."""
    if not _holds(table, types.int32, index):
        return None

    def emit(context, builder, signature, arguments):
        values = _vector(context, builder, *signature.args[:1], arguments[0], signature.args[1], arguments[1])
        return _mask(builder, builder.icmp_signed("==", values, _each(builder, arguments[2])))

    return types.int64(table, index_type(table, index), types.int32), emit


@intrinsic
def lowest_of_free(typing_context, table, taken_by, index, flip, none):
    """Return the lowest (element ^ `flip`) << 8 | place, of int32, where `taken_by`, int16, is negative; or `none`."""
    if not _holds(table, types.int32, index) or not _holds(taken_by, types.int16, index):
        return None

    def emit(context, builder, signature, arguments):
        table, taken_by, index = signature.args[:3]
        values = _vector(context, builder, table, arguments[0], index, arguments[2])
        wide = builder.sext(builder.xor(values, _each(builder, arguments[3])), ir.VectorType(_WORD, PLACES))
        keys = builder.or_(builder.shl(wide, ir.Constant(wide.type, [8] * PLACES)), _numbers(_WORD))
        holders = _vector(context, builder, taken_by, arguments[1], index, arguments[2])
        free = builder.icmp_signed("<", holders, ir.Constant(holders.type, [0] * PLACES))
        return _lowest(builder, builder.select(free, keys, _each(builder, arguments[4])))

    return types.int64(table, taken_by, index_type(table, index), types.int32, types.int64), emit

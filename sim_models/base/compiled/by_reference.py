"""Passing a run's state between compiled functions as one pointer.

numba passes a tuple by value: hundreds of array descriptors copied by every call, and as many values to carry through
every pass of its compiler. `by_reference(state)` lays a named tuple (of named tuples) down once, in the caller's
stack frame, and gives a pointer to it that is read like the tuple itself. It is valid until the caller returns.
Arrays in it are read and written by element, have `shape` and `len`, and unlike numba's take no negative index.

`at_most`, `lowest`, `equal` and `lowest_of_free` look at several neighbouring elements together, without a branch for
each: LLVM makes no vectors of the models' loops by itself, because most of them are short and branch. Such arrays lie
without gaps; those of `aligned_zeros` may be read beyond their end.
"""

# numba's own interfaces for extensions carry no types.
# pyright: reportOptionalCall=false, reportAttributeAccessIssue=false, reportArgumentType=false, reportCallIssue=false

import hashlib
import operator
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import extending, types
from numba.core import cgutils
from numba.core.imputils import lower_builtin, lower_getattr, lower_getattr_generic
from numba.core.typing.templates import AbstractTemplate, AttributeTemplate, infer_global, signature
from numba.extending import infer_getattr, models, register_model

from t3sim.base.compiled.records import HOST_LINE

PLACES = 16  #: elements that are looked at together

_WORD = ir.IntType(64)
_FETCHED_LINES = 3  #: of a record: a set of the cache has no more


def intrinsic(emit: Callable[..., Any] | None = None, **options: bool) -> Any:
    """Declare a function of compiled code: `emit(typing_context, *argument_types)` gives its signature and its LLVM.

    A decorator, with or without numba's options.
    """
    return extending.intrinsic(**options) if emit is None else extending.intrinsic(emit, **options)


class Reference(types.Type):
    """Pointer to a named tuple that does not change."""

    def __init__(self, target: types.BaseNamedTuple) -> None:
        self.dtype = target
        # numba names functions after their arguments' types; the whole tuple's name has thousands of characters.
        digest = hashlib.sha256(target.name.encode()).hexdigest()[:16]
        super().__init__(name=f"Reference({target.instance_class.__name__}, {digest})")

    @property
    def key(self):
        return self.name  # which says what the tuple has: hashing it anew would take as long as all its types do

    def field(self, name: str) -> tuple[int, types.Type]:
        """Return the index of a field and its type when it is read."""
        fields, kinds = self.dtype.fields, self.dtype.types
        index = fields.index(name)
        target = kinds[index]
        if isinstance(target, types.BaseNamedTuple):
            return index, Reference(target)
        if not isinstance(target, types.Array):
            return index, target
        for record in getattr(self.dtype.instance_class, "RECORDS", ()):
            if name in record.names:  # all by one descriptor: the compiler sees that they are side by side
                index = fields.index(record.names[0])
                return index, Descriptor(kinds[index], target, record.offset(name), record.dtype.itemsize,
                                         record.dtype[name].shape)
        return index, Descriptor(target, target)


class Descriptor(types.Type):
    """Pointer to the descriptor of an array, or to that of the first field of the records in which it lies."""

    def __init__(self, descriptor: types.Array, array: types.Array, offset: int = 0, item_bytes: int = 0,
                 inner: tuple[int, ...] = ()) -> None:
        self.dtype = descriptor  # what the pointer points at
        self.array = array
        self.offset = offset  # in bytes
        self.item_bytes = item_bytes  # of a record, 0: in none
        self.inner = inner  # shape of the field in a record
        place = f", {offset} of {item_bytes}, {inner}, {descriptor.dtype}, {descriptor.ndim}" if item_bytes else ""
        super().__init__(name=f"Table({array.dtype}, {array.ndim}, {array.layout}{place})")

    @property
    def key(self):
        return self.name


register_model(Reference)(models.PointerModel)
register_model(Descriptor)(models.PointerModel)


def _constant(builder, pointer):
    """Load what stays the same whatever is stored elsewhere, and tell LLVM so."""
    load = builder.load(pointer)
    load.set_metadata("invariant.load", builder.module.add_metadata([]))
    return load


@infer_getattr
class _ReferenceAttributes(AttributeTemplate):
    key = Reference

    def generic_resolve(self, reference, name):
        if name in reference.dtype.fields:
            return reference.field(name)[1]


@lower_getattr_generic(Reference)
def _get_field(context, builder, reference, value, name):
    index, kind = reference.field(name)
    pointer = cgutils.gep_inbounds(builder, value, 0, index)
    if isinstance(kind, (Reference, Descriptor)):
        return pointer
    return context.data_model_manager[kind].from_data(builder, _constant(builder, pointer))


def _member(context, builder, table, value, name):
    """Return a pointer to a member of the array's descriptor."""
    model = context.data_model_manager[table.dtype]
    return cgutils.gep_inbounds(builder, value, 0, model.get_field_position(name))


@infer_getattr
class _TableAttributes(AttributeTemplate):
    key = Descriptor

    def resolve_shape(self, table):
        return types.UniTuple(types.intp, table.array.ndim)


@lower_getattr(Descriptor, "shape")
def _get_shape(context, builder, table, value):
    shape = _member(context, builder, table, value, "shape")
    outer = [_constant(builder, cgutils.gep_inbounds(builder, shape, 0, i))
             for i in range(table.array.ndim - len(table.inner))]
    return context.make_tuple(builder, types.UniTuple(types.intp, table.array.ndim),
                              outer + [context.get_constant(types.intp, size) for size in table.inner])


@infer_global(len)
class _TableLength(AbstractTemplate):
    def generic(self, args, kws):
        if isinstance(args[0], Descriptor):
            return signature(types.intp, *args)


@lower_builtin(len, Descriptor)
def _length(context, builder, sig, args):
    return _constant(builder, cgutils.gep_inbounds(
        builder, _member(context, builder, sig.args[0], args[0], "shape"), 0, 0))


def index_type(table, index):
    """Return the type to which an element's index is converted; None if it is not an element's."""
    indices = tuple(index) if isinstance(index, types.BaseTuple) else (index,)
    if len(indices) != table.array.ndim or not all(isinstance(i, types.Integer) for i in indices):
        return None
    return types.UniTuple(types.intp, len(indices)) if isinstance(index, types.BaseTuple) else types.intp


@infer_global(operator.getitem)
class _TableGet(AbstractTemplate):
    def generic(self, args, kws):
        if isinstance(args[0], Descriptor) and (index := index_type(*args)) is not None:
            return signature(args[0].array.dtype, args[0], index)


@infer_global(operator.setitem)
class _TableSet(AbstractTemplate):
    def generic(self, args, kws):
        if isinstance(args[0], Descriptor) and (index := index_type(*args[:2])) is not None:
            return signature(types.none, args[0], index, args[0].array.dtype)


def _strides(context, builder, table, value):
    """Return bytes from one index to the next in each dimension: as constants where they are known."""
    array, outer = table.array, table.array.ndim - len(table.inner)
    strides = _member(context, builder, table, value, "strides")
    constant_strides = {}
    size = context.get_abi_sizeof(context.get_data_type(array.dtype))
    for i, places in reversed(list(enumerate(table.inner, outer))):
        constant_strides[i] = size
        size *= places
    if table.item_bytes:
        constant_strides[outer - 1] = table.item_bytes
    elif array.layout == "C":
        constant_strides[outer - 1] = size
    return [ir.Constant(ir.IntType(64), constant_strides[i]) if i in constant_strides
            else _constant(builder, cgutils.gep_inbounds(builder, strides, 0, i)) for i in range(array.ndim)]


def element_of(context, builder, table, value, index_type, index):
    """Return a pointer to an element."""
    indices = cgutils.unpack_tuple(builder, index) if isinstance(index_type, types.BaseTuple) else [index]
    at = _constant(builder, _member(context, builder, table, value, "data"))
    offset = ir.Constant(ir.IntType(64), 0)
    for one, stride in zip(indices, _strides(context, builder, table, value)):
        offset = builder.add(offset, builder.mul(one, stride, flags=["nsw"]), flags=["nsw"])
    at = cgutils.pointer_add(builder, at, offset)
    if table.offset:  # last, so that fields side by side have the rest in common
        at = cgutils.pointer_add(builder, at, ir.Constant(ir.IntType(64), table.offset))
    return builder.bitcast(at, context.get_data_type(table.array.dtype).as_pointer())


def _element(context, builder, sig, args):
    return element_of(context, builder, sig.args[0], args[0], sig.args[1], args[1])


@lower_builtin(operator.getitem, Descriptor, types.Any)
def _get(context, builder, sig, args):
    pointer = _element(context, builder, sig, args)
    if isinstance(sig.return_type, types.Record):
        return pointer
    return context.unpack_value(builder, sig.return_type, pointer)


@lower_builtin(operator.setitem, Descriptor, types.Any, types.Any)
def _set(context, builder, sig, args):
    context.pack_value(builder, sig.args[2], args[2], _element(context, builder, sig, args))
    return context.get_dummy_value()


@intrinsic
def fetch_ahead(typing_context, table, index):
    """Ask the host's memory for the record of which `table[index]` is the first field, as it is used soon.

    `table`: of the first field of a `records.Record`; `index` as for an element.
    """
    if not isinstance(table, Descriptor) or index_type(table, index) is None:
        return None

    def emit(context, builder, signature, arguments):
        start = builder.bitcast(_element(context, builder, signature, arguments), cgutils.voidptr_t)
        flag = ir.IntType(32)
        prefetch = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(ir.VoidType(), [cgutils.voidptr_t, flag, flag, flag]), "llvm.prefetch.p0i8")
        for line in range(_FETCHED_LINES):
            builder.call(prefetch, [cgutils.pointer_add(builder, start, line * HOST_LINE),
                                    ir.Constant(flag, 1), ir.Constant(flag, 3), ir.Constant(flag, 1)])
        return context.get_dummy_value()

    return types.void(table, index_type(table, index)), emit


@intrinsic
def by_reference(typing_context, state):
    """Return a reference to a named tuple; a reference is itself, and so is None."""
    if isinstance(state, (Reference, types.NoneType)):
        return state(state), lambda context, builder, signature, arguments: arguments[0]
    if not isinstance(state, types.BaseNamedTuple):
        return None

    def emit(context, builder, signature, arguments):
        kind = signature.args[0]
        pointer = cgutils.alloca_once(builder, context.get_data_type(kind))
        context.pack_value(builder, kind, arguments[0], pointer)
        # Through an empty instruction, so that no load of the constant fields can move in front of the stores.
        identity = ir.FunctionType(pointer.type, [pointer.type])
        return builder.asm(identity, "", "=r,0,~{memory}", [pointer], True)

    return Reference(state)(state), emit


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

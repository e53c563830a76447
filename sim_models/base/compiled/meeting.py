"""Threads of compiled code that meet: the last one to come does what all need, and lets the others go on."""

# numba's own interfaces for extensions carry no types.
# pyright: reportOptionalCall=false, reportAttributeAccessIssue=false, reportArgumentType=false, reportCallIssue=false

from collections.abc import Callable
from threading import Thread
from typing import NamedTuple, TypeVar

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils

from t3sim.base.at_once import helped
from t3sim.base.compiled.by_reference import intrinsic
from t3sim.base.compiled.jit import inlined
from t3sim.base.compiled.records import HOST_LINE, aligned_zeros

Result = TypeVar("Result")

_WORD = ir.IntType(64)
#: Words of a place to meet. Each is in a line of the host's memory of its own.
_COME, _ROUND, _GIVEN_UP, _TOLD = range(0, 4 * HOST_LINE, HOST_LINE)
_LOOKS = 200  #: at whether the others have come, after which a thread sleeps in between
_SLEEP_US = 20


class Member(NamedTuple):
    """One of the threads that meet."""

    place: int  #: address of the words by which they do
    number: int  #: 0 for the caller's
    threads: int


@intrinsic
def _add(typing_context, address, amount):
    """Add to a word, atomically; return what it was."""
    def emit(context, builder, signature, arguments):
        place = builder.inttoptr(arguments[0], _WORD.as_pointer())
        return builder.atomic_rmw("add", place, arguments[1], "seq_cst")
    return types.int64(types.int64, types.int64), emit


@intrinsic
def _read(typing_context, address):
    """Read a word, and all that was written before it."""
    def emit(context, builder, signature, arguments):
        return builder.load_atomic(builder.inttoptr(arguments[0], _WORD.as_pointer()), "acquire", 8)
    return types.int64(types.int64), emit


@intrinsic
def _write(typing_context, address, value):
    """Write a word, after all that was written before it."""
    def emit(context, builder, signature, arguments):
        builder.store_atomic(arguments[1], builder.inttoptr(arguments[0], _WORD.as_pointer()), "release", 8)
        return context.get_dummy_value()
    return types.void(types.int64, types.int64), emit


@intrinsic
def _let_others_run(typing_context, microseconds):
    """Leave the core to another thread for a moment, or for so long."""
    def emit(context, builder, signature, arguments):
        number = ir.IntType(32)
        rest = cgutils.get_or_insert_function(builder.module, ir.FunctionType(number, []), "sched_yield")
        sleep = cgutils.get_or_insert_function(builder.module, ir.FunctionType(number, [number]), "usleep")
        time = builder.trunc(arguments[0], number)
        with builder.if_else(builder.icmp_signed(">", time, ir.Constant(number, 0))) as (long, short):
            with long:
                builder.call(sleep, [time])
            with short:
                builder.call(rest, [])
        return context.get_dummy_value()
    return types.void(types.int64), emit


@inlined
def last_to_come(member: Member) -> bool:
    """Come to the meeting; return whether all others are there, who then wait for `go_on`."""
    if _add(member.place + _COME, 1) < member.threads - 1:
        return False
    _write(member.place + _COME, 0)
    return True


@inlined
def go_on(member: Member, told: int) -> None:
    """Let the others go on, and tell them a number."""
    _write(member.place + _TOLD, told)
    _add(member.place + _ROUND, 1)


@inlined
def rounds(member: Member) -> int:
    """Return how often all have gone on, to be asked before one comes."""
    return _read(member.place + _ROUND)


@inlined
def wait(member: Member, before: int) -> int:
    """Wait until all go on, after `before` rounds, and return what all are given; -1 if one has given up."""
    looks = 0
    while _read(member.place + _ROUND) == before:
        if _read(member.place + _GIVEN_UP) != 0:
            return -1
        looks += 1
        _let_others_run(0 if looks < _LOOKS else _SLEEP_US)
    return _read(member.place + _TOLD)


def on_threads(count: int, task: Callable[[Member], Result]) -> Result:
    """Call a task on this many threads, one of which is the caller's; returns what it gives there.

    Raises what one raises.
    """
    words = aligned_zeros(4 * HOST_LINE // 8, np.dtype(np.int64))
    place, errors = int(words.ctypes.data), []

    def run(number: int) -> Result | None:
        try:
            return task(Member(place, number, count))
        except BaseException as error:
            words[_GIVEN_UP // 8] = 1
            errors.append(error)

    with helped() as spent:
        threads = [Thread(target=spent, args=(run, number), daemon=True) for number in range(1, count)]
        try:
            for thread in threads:
                thread.start()
            result = run(0)
            for thread in threads:
                thread.join()
        except BaseException:
            words[_GIVEN_UP // 8] = 1
            for thread in threads:
                if thread.ident is not None:
                    thread.join()
            raise
    if errors:
        raise errors[0]
    return result  # pyright: ignore

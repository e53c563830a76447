"""Compiled functions that are chosen by the type of their first argument.

An agent or an observer is a named tuple whose class has methods. A function declared with `by_type` calls the method of
its own name; numba chooses it, and inlines it, when the caller is compiled. One that is absent is None and costs
nothing: then the declared function's own body is what is done.
"""

# numba's own interfaces for extensions carry no types.
# pyright: reportOptionalCall=false, reportAttributeAccessIssue=false, reportArgumentType=false, reportCallIssue=false

from collections.abc import Callable

from numba import types
from numba.extending import overload

from t3sim.base.compiled.by_reference import Reference

_OPTIONS = {"_nrt": False, "forceinline": True, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}


def by_type(absent: Callable) -> Callable:
    """Declare a compiled function of named tuples (or references to them) and of None; a decorator."""
    def choose(target, *_):
        if isinstance(target, types.NoneType):
            return absent
        return getattr((target.dtype if isinstance(target, Reference) else target).instance_class, absent.__name__)
    overload(absent, strict=False, jit_options=_OPTIONS)(choose)
    return absent

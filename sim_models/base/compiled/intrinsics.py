"""numba's `intrinsic`, with the type that callers see: by its own, a caller has to pass the typing context, too."""

from collections.abc import Callable
from typing import Any

from numba import extending


def intrinsic(emit: Callable[..., Any] | None = None, **options: bool) -> Any:
    """Declare a function of compiled code: `emit(typing_context, *argument_types)` gives its signature and its LLVM.

    A decorator, with or without numba's options.
    """
    return extending.intrinsic(**options) if emit is None else extending.intrinsic(emit, **options)

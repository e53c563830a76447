"""From an Amaranth component to C++ that evaluates what has changed. It imports nothing of t3sim but `base`.

From Python: `compile` a component and step the `Simulator` that `Design.simulator` makes. See
docs/how-to/simulate-your-own-design.md.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from amaranth.lib import wiring

    from t3sim.rtlsim.simulator import Design

__all__ = ["compile"]


def compile(component: "wiring.Component", name: str | None = None, inner: str = "",
            cache: "Path | None" = None) -> "Design":
    """Compile a component, or take it from the cache. It can be elaborated only once, so pass a fresh one.

    `name` becomes the module's, by default its class's. Inner signals and memories whose path matches `inner`, as
    `fifo.*`, can be looked at; all are compiled into one module then, and what is shown is evaluated in every cycle.
    `cache` is a folder that takes the place of the user's; if it cannot be written, a temporary one does.

    Raises UnsupportedDesign, with file and line, for a construct that is not simulated, and ToolchainError where there
    is no C++ compiler or it fails: both are `base.errors.Failure`.
    """
    from t3sim.rtlsim.build import compile_text, flat_text  # not above: models read ports without Amaranth
    from t3sim.rtlsim.hierarchy import module_name
    return compile_text(*flat_text(component, name or module_name(component), inner), cache)

"""From an Amaranth component to C++ that evaluates what has changed. It imports nothing of t3sim but `base`.

From Python: `compile` a component and step the `Simulator` that `Design.simulator` makes. See
docs/how-to/simulate-your-own-design.md.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from amaranth.lib import wiring

    from t3sim.rtlsim.shown import Groups
    from t3sim.rtlsim.simulator import Design

__all__ = ["compile"]


def compile(component: "wiring.Component", name: str | None = None, shown: "Groups | None" = None) -> "Design":
    """Compile a component, or take it from the user's cache. It can be elaborated only once, so pass a fresh one.

    `name` becomes the module's, by default its class's. `shown` are inner signals that become outputs (`shown.py`).
    Raises UnsupportedDesign for a construct that is not simulated, and ToolchainError where there is no C++ compiler or
    it fails: both are `base.errors.Failure`.
    """
    from t3sim.rtlsim.build import compile_text, component_text  # not above: models read ports without Amaranth
    from t3sim.rtlsim.hierarchy import module_name
    return compile_text(*component_text(component, name or module_name(component), shown or {}))

"""The rule of every stream: what was offered stays until it is taken."""

from collections.abc import Callable
from dataclasses import dataclass

from amaranth.hdl import Value

from t3sim.testbenches.formal.broken import Broken
from t3sim.testbenches.formal.dma_table import CLEARING
from t3sim.testbenches.formal.property import Property, Search
from t3sim.testbenches.formal.spec import Spec, implies, streams

CLAIM = "valid and payload hold until ready"

#: Block -> a mistake in what feeds one of its output streams.
_MISTAKES = {
    "coalescer": ("streams/two_entry_queue.py", "with m.If(~front_valid | self.output.ready):", "with m.If(1):"),
    "update_network": ("streams/two_entry_queue.py", "with m.If(~front_valid | self.output.ready):", "with m.If(1):"),
    "tracker": ("streams/two_entry_queue.py", "with m.If(~front_valid | self.output.ready):", "with m.If(1):"),
    "trigger_merge": ("streams/two_entry_queue.py", "with m.If(~front_valid | self.output.ready):", "with m.If(1):"),
    "dma_table": ("dma/dma_table.py", "ready.r_en.eq(self.commands.ready)", "ready.r_en.eq(1)"),
    "command_queue": ("dma/command_queue.py", "with m.If(self.copies.ready):", "with m.If(1):"),
    "address_generator": ("dma/address_generator.py", "output_free = ~output_valid | self.lines.ready",
                          "output_free = 1"),
    "line_router": ("dma/line_router.py", "with m.If(~occupied[c] | port.ready):", "with m.If(1):"),
    "egress": ("link/egress.py", "output_free = ~output_valid | self.packet.ready", "output_free = 1"),
    "memory_channel": ("channel/memory_channel.py",
                       "arbiter.ready.eq((~command_valid | self.dram.ready) & guard.ready)",
                       "arbiter.ready.eq(guard.ready)"),
    "head_exchange": ("window/head_exchange.py", "due.any() & (~self.leaving.valid | self.leaving.ready)", "due.any()"),
    "dispatch_window": ("window/dispatch_window.py", "with m.Elif(admission.valid & admission.ready):",
                        "with m.Elif(admission.valid):"),
    "nmc_alu": ("streams/moving_together.py", "move.eq(~result.valid | result.ready)", "move.eq(1)"),
    "wide_alu": ("streams/moving_together.py", "move.eq(~result.valid | result.ready)", "move.eq(1)"),
    "gpu_top": ("channel/memory_channel.py", "arbiter.ready.eq((~command_valid | self.dram.ready) & guard.ready)",
                "arbiter.ready.eq(guard.ready)"),
}

#: Where it takes longer than 20 cycles of the default geometry to fail.
_SEARCHES = {
    "tracker": (Search("least", 25), Search("default", 41, skip=33)),
    "memory_channel": (Search("least", 25), Search("default", 72, skip=65)),
    "dma_table": (Search("least", 25), Search("small", 32, skip=16)),
    "dispatch_window": (Search("least", 25),),
    "gpu_top": (Search("least", 25), Search("small", 25)),
}
#: Blocks for which that is too long.
_UNSEARCHED = {
    "dma_table": CLEARING,
    "dispatch_window": "the default's memory of ids is cleared for 256 cycles after a reset",
    "gpu_top": "the default's 32 order guards are cleared for 64 cycles after a reset",
}

_QUICK = {"coalescer", "tracker", "address_generator", "egress"}  # for `make test`


@dataclass(frozen=True)
class TakenBack:
    """Condition under which a block may take back what it offers."""

    by: str  #: in words
    signal: Callable[[Spec], Value]  #: in that cycle
    streams: tuple[str, ...] = ()  #: of which outputs; all, if none is named


#: The driver starts no kernel while a block is busy; it soft-resets what hangs, and nobody waits for its events then,
#: nor for updates: the Tracker is reset in the same cycle.
_TAKEN_BACK = {
    "memory_channel": TakenBack("for updates a soft reset", lambda spec: spec.design.forget, ("updates",)),
    "dispatch_window": TakenBack("a restart", lambda spec: spec.design.restart),
    "gpu_top": TakenBack("for events a soft reset", lambda spec: spec.submodule("reset_sequence").clear, ("events",)),
}


def hold(block: str) -> Callable[[Spec, object], None]:
    """Claim the streams' rule. Nothing is assumed about the inputs, not even that their streams keep to it."""
    taken_back = _TAKEN_BACK.get(block)

    def claim(spec: Spec, _) -> None:
        excused = spec.past(taken_back.signal(spec)) if taken_back else 0
        for name, port in streams(spec.design):
            refused = spec.past(port.valid & ~port.ready)
            before = spec.past(port.payload)
            same = port.valid & (Value.cast(port.payload) == Value.cast(before))
            held = implies(refused, same)
            is_excused = taken_back and name in (taken_back.streams or (name,))
            spec.claim(CLAIM, held | excused if is_excused else held)

    return claim


def properties() -> list[Property]:
    return [Property("streams hold", block, f"every output stream: {CLAIM}"
                     + (f", or {_TAKEN_BACK[block].by}" if block in _TAKEN_BACK else ""), hold(block),
                     (Broken("output moves on while it is refused", CLAIM, *_MISTAKES[block]),),
                     searches=_SEARCHES.get(block, (Search("least", 25), Search("default"))), quick=block in _QUICK,
                     timeout_s=1800, unsearched=_UNSEARCHED.get(block, ""))
            for block in _MISTAKES]

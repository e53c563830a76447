"""The rule of every stream: what was offered stays until it is taken."""

from amaranth.hdl import Value

from .broken import Broken
from .dma_table import CLEARING
from .property import Property, Search
from .spec import Spec, implies, streams

CLAIM = "valid and payload hold until ready"

#: Block -> a mistake in what feeds one of its output streams.
_MISTAKES = {
    "coalescer": ("two_entry_queue.py", "with m.If(~front_valid | self.output.ready):", "with m.If(1):"),
    "update_network": ("two_entry_queue.py", "with m.If(~front_valid | self.output.ready):", "with m.If(1):"),
    "tracker": ("two_entry_queue.py", "with m.If(~front_valid | self.output.ready):", "with m.If(1):"),
    "trigger_merge": ("two_entry_queue.py", "with m.If(~front_valid | self.output.ready):", "with m.If(1):"),
    "dma_table": ("dma_table.py", "ready.r_en.eq(self.commands.ready)", "ready.r_en.eq(1)"),
    "command_queue": ("command_queue.py", "with m.If(self.copies.ready):", "with m.If(1):"),
    "address_generator": ("address_generator.py", "output_free = ~output_valid | self.lines.ready",
                          "output_free = 1"),
    "line_router": ("line_router.py", "with m.If(~occupied[c] | port.ready):", "with m.If(1):"),
    "egress": ("egress.py", "output_free = ~output_valid | self.packet.ready", "output_free = 1"),
    "memory_channel": ("memory_channel.py", "arbiter.ready.eq((~command_valid | self.dram.ready) & guard.ready)",
                       "arbiter.ready.eq(guard.ready)"),
    "head_exchange": ("head_exchange.py", "due.any() & (~self.leaving.valid | self.leaving.ready)", "due.any()"),
    "dispatch_window": ("dispatch_window.py", "with m.Elif(admission.valid & admission.ready):",
                        "with m.Elif(admission.valid):"),
    "nmc_alu": ("nmc_alu.py", "move.eq(~self.result.valid | self.result.ready)", "move.eq(1)"),
    "gpu_top": ("memory_channel.py", "arbiter.ready.eq((~command_valid | self.dram.ready) & guard.ready)",
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


def hold(spec: Spec, _) -> None:
    """Claim the streams' rule. Nothing is assumed about the inputs, not even that their streams keep to it."""
    for _, port in streams(spec.design):
        refused = spec.past(port.valid & ~port.ready)
        before = spec.past(port.payload)
        spec.claim(CLAIM, implies(refused, port.valid & (Value.cast(port.payload) == Value.cast(before))))


def hold_until_restart(spec: Spec, _) -> None:
    """Claim `hold`, but a restart takes back what is offered: the driver starts no kernel while a block is busy."""
    restarted = spec.past(spec.design.restart)
    for _, port in streams(spec.design):
        refused = spec.past(port.valid & ~port.ready)
        before = spec.past(port.payload)
        same = port.valid & (Value.cast(port.payload) == Value.cast(before))
        spec.claim(CLAIM, implies(refused & ~restarted, same))


#: Blocks with a restart that takes back what they offer.
_RESTARTED = {"dispatch_window"}


def properties() -> list[Property]:
    return [Property("streams hold", block, f"every output stream: {CLAIM}"
                     + (", or a restart" if block in _RESTARTED else ""),
                     hold_until_restart if block in _RESTARTED else hold,
                     (Broken("output moves on while it is refused", CLAIM, *_MISTAKES[block]),),
                     searches=_SEARCHES.get(block, (Search("least", 25), Search("default"))), quick=block in _QUICK,
                     timeout_s=1800, unsearched=_UNSEARCHED.get(block, ""))
            for block in _MISTAKES]

"""A fraction of a GPU: of everything that it has many of, as large a share."""

from t3sim.base.errors import BadInput
from t3sim.machine.machine import Machine

#: Whole numbers that must divide: what a smaller GPU would have less of.
_COUNTS = ("gpu.compute_units", "channels.count", "dram.channels", "llc.size_bytes", "llc.slices",
           "memory_cache.size_bytes", "tracker.sets")
_RATES = ("llc.bandwidth_bytes_per_ns", "memory_cache.bandwidth_bytes_per_ns", "link.bandwidth_gb_per_s",
          "network.bandwidth_gb_per_s")
#: Sizes of buffers and parallel parts, rounded up: at least one.
_SIZES = ("llc.parts", "link.egress_buffer_bytes", "link.store_buffer_bytes", "tracker.banks", "dma.engines",
          "dma.ready_commands", "dma.outstanding_lines", "dma.egress_lanes")


def fraction_of(machine: Machine, parts: int) -> Machine:
    """Return a GPU with one of `parts` equal parts of a machine's units, channels, cache, links, tables and switches.

    Latencies, clocks, and what a unit or a channel is, stay. Raises BadInput where a count has no such part.
    """
    if parts == 1:
        return machine
    changes: dict[str, dict[str, float]] = {}
    for where in (*_COUNTS, *_RATES, *_SIZES):
        section, key = where.split(".")
        value = getattr(getattr(machine, section), key, None)
        if value is None:
            continue
        if where in _COUNTS and value % parts:
            raise BadInput(f"fraction = 1/{parts}: [{section}] {key} = {value} of {machine.name} has no such part")
        changes.setdefault(section, {})[key] = (value / parts if where in _RATES else
                                                value // parts if where in _COUNTS else -(-value // parts))
    if machine.switch and machine.switch.planes % parts == 0:  # a switch that is alone stays whole
        changes["switch"] = {"planes": machine.switch.planes // parts}
    content = machine.model_dump()
    for section, keys in changes.items():
        content[section] |= keys
    return type(machine).model_validate({**content, "name": f"1/{parts} of {machine.name}"})

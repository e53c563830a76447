"""A fraction of a GPU: the same share of all its units, channels, rates and buffers."""

from t3sim.base.errors import BadInput
from t3sim.machine.machine import Machine

#: Counts that the number of parts must divide.
_COUNTS = ("gpu.compute_units", "channels.count", "dram.channels", "llc.size_bytes", "llc.slices",
           "memory_cache.size_bytes", "tracker.sets")
_RATES = ("llc.bandwidth_bytes_per_ns", "memory_cache.bandwidth_bytes_per_ns", "link.bandwidth_gb_per_s",
          "network.bandwidth_gb_per_s")
#: Sizes of buffers and parallel parts, rounded up: at least one.
_SIZES = ("llc.parts", "link.egress_buffer_bytes", "link.store_buffer_bytes", "tracker.banks", "dma.engines",
          "dma.ready_commands", "dma.outstanding_lines", "dma.egress_lanes")


def fraction_of(machine: Machine, parts: int) -> Machine:
    """Return a GPU with one of `parts` equal parts of a machine's units, channels, cache, links, tables and switches.

    Latencies, clocks, and the sizes of a unit and a channel stay. Raises BadInput if a count does not divide.
    """
    if parts == 1:
        return machine
    smaller: dict[str, dict[str, float]] = {}
    for name in (*_COUNTS, *_RATES, *_SIZES):
        section, key = name.split(".")
        value = getattr(getattr(machine, section), key, None)
        if value is None:
            continue
        if name in _COUNTS and value % parts:
            raise BadInput(f"fraction = 1/{parts}: [{section}] {key} = {value} of {machine.name} has no such part")
        smaller.setdefault(section, {})[key] = (value / parts if name in _RATES else
                                                value // parts if name in _COUNTS else -(-value // parts))
    if machine.switch and machine.switch.planes % parts == 0:  # a single switch stays whole
        smaller["switch"] = {"planes": machine.switch.planes // parts}
    content = machine.model_dump()
    for section, keys in smaller.items():
        content[section] |= keys
    return type(machine).model_validate({**content, "name": f"1/{parts} of {machine.name}"})

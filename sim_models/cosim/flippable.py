"""A Tracker bank with a way into its memories: bits of any word flip in one cycle, in any simulator."""

from amaranth.hdl import Module, Mux, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from t3sim.rtl.track.tracker import TrackerBank

PORTS = {"flip_mask": In(128), "flip_row": In(8), "flip_way": In(6), "flip_in_entry": In(1)}


class Flips(wiring.Component):
    """Further ports: `flip_mask` (0: none) is applied to way `flip_way`, row `flip_row`, of the tags or the entries."""

    def __init__(self, members) -> None:
        super().__init__({**members, **PORTS}, src_loc_at=1)


class FlippableBank(TrackerBank, Flips):
    def elaborate(self, platform) -> Module:
        m = super().elaborate(platform)
        for in_entry, memories in enumerate((self.tags, self.entries)):
            for way, memory in enumerate(memories):
                written, = memory.write_ports
                read, write = memory.read_port(domain="comb"), memory.write_port()
                chosen = (self.flip_mask != 0) & (self.flip_way == way) & (self.flip_in_entry == in_entry)
                m.d.comb += [
                    read.addr.eq(self.flip_row),
                    write.addr.eq(self.flip_row),
                    Value.cast(write.data).eq(Value.cast(read.data) ^ self.flip_mask),
                    # What is being written stays as it is: it must not be lost.
                    write.en.eq(Mux(written.en, 0, chosen)),
                ]
        return m

"""Round-robin joining of streams whose `ready` does not depend on their own `valid`."""

from amaranth.hdl import Cat, Const, Mux, Signal


def rotating_grant(m, requests, granted):
    """Add a round-robin arbiter to module `m`; return the requesters that may go, as a bit vector.

    Of the requesting bits exactly one may go; a bit that does not request is set if it would win.
    `granted` says that the chosen requester goes in this cycle, after which its successor comes first.
    """
    width = len(requests)
    if width == 1:
        return Const(1, 1)
    first = Signal(width)  # those behind the last one granted
    preferred = Signal(width)
    behind_preferred = Signal(width)
    behind_any = Signal(width)
    may_go = Signal(width)
    m.d.comb += [
        preferred.eq(requests & first),
        behind_preferred.eq(~(preferred ^ (preferred - 1))),  # bits above the lowest 1; none if there is no 1
        behind_any.eq(~(requests ^ (requests - 1))),
        may_go.eq((first & ~behind_preferred) | Mux(preferred.any(), 0, ~first & ~behind_any)),
    ]
    with m.If(granted):
        m.d.sync += first.eq(Mux(preferred.any(), behind_preferred, behind_any))
    return may_go


def join(m, requests, payloads, sink):
    """Feed the stream `sink` from the requesters in turn; return one bit each: a request would go now."""
    wanted = Signal(len(requests))
    may_go = Signal(len(requests))
    m.d.comb += [
        wanted.eq(Cat(requests)),
        sink.valid.eq(wanted.any()),
        may_go.eq(rotating_grant(m, wanted, sink.valid & sink.ready)),
    ]
    for number, payload in enumerate(payloads):
        with m.If(wanted[number] & may_go[number]):
            m.d.comb += sink.payload.eq(payload)
    return Mux(sink.ready, may_go, 0)

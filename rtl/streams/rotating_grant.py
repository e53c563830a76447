"""Round-robin joining of streams whose `ready` does not depend on their own `valid`."""

from amaranth.hdl import Cat, Const, Mux, Signal


def rotating_grant(m, requests, granted):
    """Add a round-robin arbiter to module `m`; return one bit per requester.

    Exactly one requesting bit is set. The bit of an idle requester is set if its request would win. `granted` must say
    whether the chosen requester is served in this cycle; its successor is then preferred.
    """
    width = len(requests)
    if width == 1:
        return Const(1, 1)
    first = Signal(width)  # the requesters after the last one granted
    preferred = Signal(width)
    behind_preferred = Signal(width)
    behind_any = Signal(width)
    may_go = Signal(width)
    m.d.comb += [
        preferred.eq(requests & first),
        behind_preferred.eq(~(preferred ^ (preferred - 1))),  # bits above the lowest 1, if any
        behind_any.eq(~(requests ^ (requests - 1))),
        may_go.eq((first & ~behind_preferred) | Mux(preferred.any(), 0, ~first & ~behind_any)),
    ]
    with m.If(granted):
        m.d.sync += first.eq(Mux(preferred.any(), behind_preferred, behind_any))
    return may_go


def join(m, requests, payloads, sink):
    """Feed the stream `sink` from the requesters in turn; return a bit for each: a request would be taken now."""
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

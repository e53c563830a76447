"""The configuration bus's signals."""

from amaranth.lib.wiring import In, Out, Signature


def apb_signature(address_bits: int) -> Signature:
    """Return an APB3 interface with 32-bit data, as its master sees it (AMBA APB protocol, version 3)."""
    return Signature({
        "paddr": Out(address_bits),
        "psel": Out(1),
        "penable": Out(1),
        "pwrite": Out(1),
        "pwdata": Out(32),
        "prdata": In(32),
        "pready": In(1),
        "pslverr": In(1),
    })

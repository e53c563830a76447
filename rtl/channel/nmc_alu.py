"""The near-memory ALU: op-and-store on one DRAM column."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out

from t3sim.rtl.channel.fp_adder import FpAdder
from t3sim.rtl.formats import BF16, FP16, FP32
from t3sim.rtl.geometry import GeometryError
from t3sim.rtl.streams.moving_together import moving_together


class AluOp(enum.Enum, shape=2):
    """Operation on the column in memory."""

    ADD = 0  #: old + new
    STORE = 1  #: new, bits unchanged, NaN payloads included
    XOR = 2  #: old XOR new; the unused code 3 acts as STORE


class AluDtype(enum.Enum, shape=2):
    """Element type. The number is the index into a lane's formats."""

    FP16 = 0
    BF16 = 1
    FP32 = 2  #: the unused code 3 acts as FP32


def operands(column_bytes: int) -> data.StructLayout:
    return data.StructLayout({
        "old": 8 * column_bytes,  # column in memory, lowest address in the lowest bits
        "new": 8 * column_bytes,
        "op": AluOp,
        "dtype": AluDtype,  # of every element; no effect on STORE and XOR
    })


def result(column_bytes: int) -> data.StructLayout:
    return data.StructLayout({"column": 8 * column_bytes})


class NmcAlu(wiring.Component):
    """Op-and-store for one column per cycle (T3 paper, section 4.3).

    1. Additions are IEEE-754, rounded once to nearest, ties to even, with subnormals; NaN results are the positive
       quiet NaN without payload.
    2. Columns leave in order, `LATENCY` cycles after they entered if the consumer is ready.
    3. `operands.ready` is low only while a finished column waits for `result.ready`. It depends combinationally on
       `result.ready`, not on `operands.valid`.

    The whole pipeline moves together, but a lane's stage is enabled only if a column enters it. Each 32 bits of the
    column share two lanes: one adds an fp32 or the lower 16-bit element, the other the upper 16-bit element. XOR swaps
    two places with three operations and no buffer (DMA collectives paper, section 4.2).

    Parameters
    ----------
    column_bytes : int
        Bytes of one DRAM column access: a power of two from 4 to 128.

    Members
    -------
    operands : In(stream(operands(column_bytes)))
        Columns to combine, at most one per cycle.
    result : Out(stream(result(column_bytes)))
        Columns to write, one for each accepted.
    """

    LATENCY = FpAdder.LATENCY

    #: lane implementation, replaced by tests
    adder = FpAdder

    def __init__(self, column_bytes: int = 32):
        if type(column_bytes) is not int or column_bytes not in (4, 8, 16, 32, 64, 128):
            raise GeometryError(f"column_bytes={column_bytes!r} is impossible: a power of two from 4 to 128 is needed")
        self.column_bytes = column_bytes
        super().__init__({
            "operands": In(stream.Signature(operands(column_bytes))),
            "result": Out(stream.Signature(result(column_bytes))),
        })

    def elaborate(self, platform):
        m = Module()
        move, valid = moving_together(m, self.operands, self.result, self.LATENCY)

        request = self.operands.payload
        keep = request.op != AluOp.ADD
        new = request.new ^ Mux(request.op == AluOp.XOR, request.old, 0)
        single = Signal(self.LATENCY)  # 32-bit elements
        with m.If(move):
            m.d.sync += single.eq(Cat(request.dtype.as_value()[1], single))

        for number in range(self.column_bytes // 4):
            base = 32 * number
            m.submodules[f"low{number}"] = low = self.adder((FP16, BF16, FP32))
            m.submodules[f"high{number}"] = high = self.adder((FP16, BF16))
            m.d.comb += [
                low.a.eq(request.old[base:base + 32]),
                low.b.eq(new[base:base + 32]),
                low.format.eq(request.dtype),
                high.a.eq(request.old[base + 16:base + 32]),
                high.b.eq(new[base + 16:base + 32]),
                high.format.eq(request.dtype.as_value()[0]),
            ]
            for lane in (low, high):
                m.d.comb += [lane.keep_b.eq(keep), lane.enable.eq(Mux(move, Cat(self.operands.valid, valid), 0))]
            slice_out = self.result.payload.column[base:base + 32]
            m.d.comb += slice_out.eq(low.result)
            with m.If(~single[-1]):
                m.d.comb += slice_out[16:].eq(high.result)
        return m

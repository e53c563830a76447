"""The memory codec corrects every single flip and detects every double one."""

from amaranth.hdl import Mux, Signal

from t3sim.rtl.geometry import Geometry
from t3sim.testbenches.formal.broken import Broken
from t3sim.testbenches.formal.property import Property, Search
from t3sim.testbenches.formal.spec import Spec, implies

RIGHT = "an unchanged word is returned, and nothing is reported"
CORRECTED = "every single flip is corrected and reported"
DETECTED = "every double flip is detected, and not taken for a single one"
NOTICED = "every single flip is detected"


def _stored(spec: Spec):
    """Flip any bits between what is written and what is read; return how many, 0 to 2."""
    codec = spec.design
    bits = len(codec.word)
    one, other = (spec.any_constant(range(bits)) for _ in range(2))
    flips = spec.any_constant(range(3))
    first, second = Signal(bits), Signal(bits)
    spec.m.d.comb += [first.eq(Mux(flips >= 1, 1 << one, 0)), second.eq(Mux(flips == 2, 1 << other, 0))]
    spec.assume((one < bits) & (other < bits) & (one != other) & (flips <= 2))
    spec.connect(codec.stored, codec.word ^ first ^ second)
    return flips


def secded(spec: Spec, _: Geometry) -> None:
    codec, flips = spec.design, _stored(spec)
    spec.claim(RIGHT, implies(flips == 0, (codec.found == codec.data) & ~codec.corrected & ~codec.uncorrectable))
    spec.claim(CORRECTED, implies(flips == 1, (codec.found == codec.data) & codec.corrected & ~codec.uncorrectable))
    spec.claim(DETECTED, implies(flips == 2, codec.uncorrectable & ~codec.corrected))


def parity(spec: Spec, _: Geometry) -> None:
    codec, flips = spec.design, _stored(spec)
    spec.claim(RIGHT, implies(flips == 0, (codec.found == codec.data) & ~codec.corrected & ~codec.uncorrectable))
    spec.claim(NOTICED, implies(flips == 1, codec.uncorrectable & ~codec.corrected))


def _tag(g: Geometry) -> int:
    return 1 + g.tracker.tag_bits


def _entry(g: Geometry) -> int:
    return g.tracker.address_bits + g.tracker.count_bits + g.dma.region_bits


def properties() -> list[Property]:
    def build(protection, bits):
        return lambda package, g: package.track.memory_codec.MemoryCodec(protection, bits(g))

    inverted = Broken("a check bit is judged inverted", RIGHT, "track/memory_codec.py", "^ self.stored[width + row]",
                      "^ ~self.stored[width + row]")
    broken_secded = (
        inverted,
        Broken("a flipped check bit is not recognised", CORRECTED, "track/memory_codec.py", "(*self._columns, *alone)",
               "self._columns"),
        Broken("columns of even weight: two flips look like one", DETECTED, "check_bits.py",
               "for weight in range(3, rows + 1, 2):", "for weight in range(2, rows + 1):"),
        Broken("an even syndrome is silent", DETECTED, "track/memory_codec.py", "syndrome.any() & ~flipped.any()", "0"),
    )
    corrects = "any word with one bit flipped, check bits included, is corrected, with two it is reported: "
    return [
        Property("secded, a tag", "memory_codec", f"{corrects}the width of a tag", secded, broken_secded, depth=1,
                 searches=(Search("default", 2),), build=build("secded", _tag), quick=True),
        Property("secded, an entry", "memory_codec", f"{corrects}the width of an entry", secded, broken_secded, depth=1,
                 searches=(Search("default", 2),), build=build("secded", _entry), timeout_s=3600),
        Property("parity, a tag", "memory_codec", "any word with one bit flipped, the check bit included, is reported",
                 parity, (
                     inverted,
                     Broken("half of the word is not checked", NOTICED, "check_bits.py", "return (1,) * data_bits",
                            "return (1, 0) * (data_bits // 2)"),
                 ), depth=1, searches=(Search("default", 2),), build=build("parity", _tag), quick=True),
    ]

"""Map of every top-level port: in Python, in the Verilog and in the packed word arrays.

Plain Python: testbenches read a PortMap from JSON without Amaranth.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path

WORD_BITS = 64
FALLING = " falling"  #: behind a clock whose registers change when it falls
RESET = "rst"  #: name of the synchronous reset in a PortMap, an input like the others


@dataclass(frozen=True)
class Field:
    """One leaf of a struct payload."""

    lsb: int  #: lowest bit inside the port
    width: int  #: bits


@dataclass(frozen=True)
class Port:
    """One flattened port."""

    name: str  #: path in the component's signature, e.g. `compute[3].payload`
    verilog: str  #: name in the Verilog, e.g. `compute__3__payload`
    width: int  #: bits
    offset: int  #: first 64-bit word in the input or output array
    fields: dict[str, Field] = field(default_factory=dict)  #: leaves of a struct, e.g. `request.address`

    @property
    def words(self) -> int:
        return words_for(self.width)


def words_for(width: int) -> int:
    return -(-width // WORD_BITS)


@dataclass(frozen=True)
class InnerMemory:
    """A memory that can be read and written by word."""

    number: int  #: in the compiled design
    width: int  #: bits
    depth: int  #: words


@dataclass(frozen=True)
class PortMap:
    """All ports of one component, in the order of its signature.

    Each port starts at a 64-bit word of its own; inner signals are further outputs, which share words where they are
    the same. Inputs and outputs are numbered separately. When the component has registers, the last input is `rst`, the
    synchronous reset; the clock is not a port, the backend drives it.
    """

    top: str  #: name of the Verilog module
    inputs: dict[str, Port]
    outputs: dict[str, Port]
    clock: str | None  #: name of the clock in the Verilog; None for a block without registers
    memories: dict[str, InnerMemory] = field(default_factory=dict)  #: inner ones, by path
    clocks: tuple[str, ...] = ()  #: inputs that are clocks, if it is not `clk` alone; each can be stepped by itself

    @cached_property
    def input_words(self) -> int:
        return max((port.offset + port.words for port in self.inputs.values()), default=0)

    @cached_property
    def output_words(self) -> int:
        return max((port.offset + port.words for port in self.outputs.values()), default=0)

    def __iter__(self) -> Iterator[Port]:
        yield from self.inputs.values()
        yield from self.outputs.values()

    def port(self, name: str) -> Port:
        try:
            return self.inputs.get(name) or self.outputs[name]
        except KeyError:
            raise KeyError(f"{self.top} has no port {name!r}; it has {', '.join(p.name for p in self)}") from None

    @cached_property
    def places(self) -> dict[str, tuple[Port, int, int]]:
        """Every port and every field of one, by name: the port, and the lowest bit and width in it."""
        places = {}
        for port in self:
            places[port.name] = port, 0, port.width
            for leaf, bits in port.fields.items():
                places[port.name + "." * (leaf[0] != "[") + leaf] = port, bits.lsb, bits.width
        return places

    @cached_property
    def below(self) -> dict[str, dict[str | int, str]]:
        """What is directly below a port, an interface or a module: its key there and its name."""
        below: dict[str, dict[str | int, str]] = {}
        for name in self.places:
            while match := re.fullmatch(r"(.+?)(?:\.([^.\[]+)|\[(\d+)\])", name, re.DOTALL):
                owner, key, index = match.groups()
                below.setdefault(owner, {})[key or int(index)] = name
                name = owner
        return below

    def place(self, name: str) -> tuple[Port, int, int]:
        """Return the port that is called `name` or has a field of this name, and its lowest bit and width there.

        Raises KeyError.
        """
        if name not in self.places:
            raise KeyError(f"{self.top} has no port, field or shown signal {name!r}; close to it: "
                           f"{', '.join(get_close_matches(name, self.places)) or 'nothing'}")
        return self.places[name]

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1)

    @classmethod
    def from_json(cls, text: str) -> "PortMap":
        raw = json.loads(text)

        def ports(side: str) -> dict[str, Port]:
            return {name: Port(**{**port, "fields": {leaf: Field(**bits) for leaf, bits in port["fields"].items()}})
                    for name, port in raw[side].items()}

        memories = {name: InnerMemory(**memory) for name, memory in raw["memories"].items()}
        return cls(raw["top"], ports("inputs"), ports("outputs"), raw["clock"], memories,
                   tuple(raw["clocks"]))

    @classmethod
    def load(cls, path: Path) -> "PortMap":
        return cls.from_json(Path(path).read_text())

"""A compiled design as files of its own: a C++ library with a C interface, a SystemC module, a test and a README."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined

from t3sim.rtlsim.design_code import CHECKSUM_MULTIPLIER, LINKAGE
from t3sim.rtlsim.port_map import RESET, WORD_BITS, Port, PortMap, words_for

CHECK_CYCLES = 12_000
_HELD_CYCLES = 3  #: that the test's inputs stay
_DENSITIES = 4  #: 1 bits of its inputs: 1/2, 1/4, 1/8, 1/16, so that small numbers are there
_INCREMENT = 0x9e3779b97f4a7c15  #: of splitmix64, the test's random numbers
_MIXERS = ((30, 0xbf58476d1ce4e5b9), (27, 0x94d049bb133111eb), (31, 1))

#: Template: the file's name.
_FILES = {"library.h": "{}.h", "library.cpp": "{}.cpp", "systemc.h": "{}_systemc.h", "check.c": "{}_check.c",
          "CMakeLists.txt": "CMakeLists.txt", "README.md": "README.md"}


@dataclass(frozen=True)
class Place:
    """A port, or a field of one, as the library lists it."""

    name: str
    constant: str  #: in C, its number
    input: int
    width: int
    port: int  #: number of the port that it is or is in
    lsb: int
    bit: int  #: its lowest in all inputs or outputs


def library_files(code: str, ports: PortMap, origin: str, sizes: str, checksum: str,
                  recorded: tuple[PortMap, dict] | None = None) -> dict[str, str]:
    """Return file name: text, of C++ by `design_code` and its ports.

    `origin` is a sentence for the head of each file, `sizes` a line that follows it. `checksum` is that of
    `check_stimulus`. `recorded`: the ports of `code`, if it shows inner signals behind `ports`, and the first line of
    a recording. The library can then record itself: after that line as JSON, each cycle is a row of words, inputs,
    outputs before the clock edge, and outputs after it.
    """
    shown, head = recorded or (ports, {})
    places = list(_places(ports))
    whole = [place for number, place in enumerate(places) if place.port == number]
    environment = Environment(loader=PackageLoader(__package__, "."), undefined=StrictUndefined,
                              keep_trailing_newline=True, trim_blocks=False)
    values = {
        "name": ports.top, "upper": ports.top.upper(), "origin": origin, "sizes": sizes,
        "places": places, "clock": ports.clock,
        "design": code.replace(LINKAGE, "#define T3_API [[maybe_unused]] static"),
        "ports": [_module_port(place, ports.port(place.name)) for place in whole],
        "input_words": shown.input_words, "output_words": shown.output_words,
        "recording": json.dumps(json.dumps(head) + "\n") if head else "",
        "most_words": max(port.words for port in ports), "checksum": checksum,
        "cycles": CHECK_CYCLES, "held": _HELD_CYCLES, "densities": _DENSITIES,
        "increment": hex(_INCREMENT), "multiplier": CHECKSUM_MULTIPLIER}
    return {file.format(ports.top): environment.get_template(f"{template}.j2").render(values)
            for template, file in _FILES.items()}


def check_stimulus(ports: PortMap) -> np.ndarray:
    """Return the inputs that the library's own test draws, uint64[cycles, input words]."""
    draws = -(-CHECK_CYCLES // _HELD_CYCLES)
    factors = np.arange(1, draws * ports.input_words * _DENSITIES + 1, dtype=np.uint64)
    bits = factors.reshape(draws, ports.input_words, _DENSITIES) * np.uint64(_INCREMENT)
    for shift, factor in _MIXERS:
        bits = (bits ^ bits >> np.uint64(shift)) * np.uint64(factor)
    words = np.bitwise_and.accumulate(bits, axis=2)[np.arange(draws), :, np.arange(draws) % _DENSITIES]
    stimulus = np.repeat(words, _HELD_CYCLES, axis=0)[:CHECK_CYCLES]
    for port in ports.inputs.values():
        if port.width % WORD_BITS:
            stimulus[:, port.offset + port.words - 1] &= np.uint64((1 << port.width % WORD_BITS) - 1)
    if RESET in ports.inputs:
        stimulus[:, ports.inputs[RESET].offset] = np.arange(CHECK_CYCLES) == CHECK_CYCLES // 2
    return stimulus


def _places(ports: PortMap) -> Iterator[Place]:
    constants: set[str] = {f"{ports.top}_PORT_COUNT".upper()}
    number = 0
    for port in ports:
        owner, fields = number, {name: place for name, place in ports.places.items() if place[0] is port}
        for name, (_, lsb, width) in fields.items():
            constant = re.sub(r"\W+", "_", f"{ports.top}_{name}").strip("_").upper()
            while constant in constants:
                constant += "_"
            constants.add(constant)
            yield Place(name, constant, int(port.name in ports.inputs), width, owner, lsb,
                        port.offset * WORD_BITS + lsb)
            number += 1


def _module_port(place: Place, port: Port) -> dict[str, object]:
    """Return a port of the SystemC module."""
    kind = "bool" if port.width == 1 else f"sc_dt::sc_{'' if words_for(port.width) == 1 else 'big'}uint<{port.width}>"
    return {"constant": place.constant, "input": place.input, "member": port.verilog, "type": kind,
            "fields": [f"{name} {bits.lsb}+{bits.width}" for name, bits in port.fields.items()]}

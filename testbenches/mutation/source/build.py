"""Writes a block with mistakes in its source as RTLIL: `python -m t3sim.testbenches.mutation.source.build JOB FOLDER`.

It is run in a process of its own, for the sources must not have been imported before they can be changed.

JOB has `block`, `geometry`, `files`, `count`, `seed` and `only`. The folder gets `changed.il`, and `changes.json` with
the mistakes in the order of their numbers.
"""

import json
import random
import re
import sys
from dataclasses import asdict
from pathlib import Path

from amaranth.back import rtlil
from amaranth.hdl import Fragment, Signal
from amaranth.hdl._ir import PortDirection
from amaranth.hdl._nir import CombinationalCycle

from t3sim.testbenches.mutation.source.changes import EXCHANGED, SELECT_BITS, Change, Changes
from t3sim.testbenches.mutation.source.rewrite import import_with

SELECT = "mutant"


def _rtlil(block: str, geometry: dict, changes: Changes, select: Signal | None) -> str:
    from t3sim.cosim.testbench import design_under_test
    from t3sim.rtlsim.signature import signature_ports

    changes.forget()
    component = design_under_test(block, geometry)
    ports = signature_ports(component)
    if select is not None:
        ports[SELECT] = select, PortDirection.Input
    return rtlil.convert_fragment(Fragment.get(component, None), ports, block)[0]


def main() -> None:
    job, folder = json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2])
    select, numbers, found = Signal(SELECT_BITS, name=SELECT), {}, {}

    def wanted(change: Change) -> int | None:
        return numbers.get(change) if numbers else found.setdefault(change)

    changes = Changes(wanted, select, job["clocked"])
    import_with(changes, job["files"])
    from t3sim.rtl.geometry import ChannelGeometry, DmaGeometry, Geometry, SwitchGeometry, TrackerGeometry

    parts = job["geometry"]
    geometry = Geometry(TrackerGeometry(**parts["tracker"]), ChannelGeometry(**parts["channel"]),
                        DmaGeometry(**parts["dma"]), SwitchGeometry(**parts["switch"]))
    _rtlil(job["block"], geometry, changes, None)
    possible, chosen, text = [change for change in found if re.search(job["only"], change.what)], [], ""
    draw = random.Random(job["seed"])
    while not text:
        missing = min(job["count"], len(possible)) - len(chosen)
        drawn = draw.sample([change for change in possible if change not in chosen], missing)
        chosen = sorted(chosen + drawn, key=possible.index)
        numbers.clear()
        numbers |= {change: number for number, change in enumerate(chosen, start=1)}
        try:
            text = _rtlil(job["block"], geometry, changes, select)
        except CombinationalCycle as cycle:
            # What the second of a loop is given was made from what the first is: they cannot be exchanged.
            loop = re.search(rf"signal {EXCHANGED}(\d+) ", str(cycle))
            if loop is None:
                raise
            impossible = chosen.pop(int(loop[1]) - 1)
            possible.remove(impossible)
    (folder / "changed.il").write_text(text)
    (folder / "changes.json").write_text(json.dumps({"chosen": list(map(asdict, chosen))}, indent=1))


if __name__ == "__main__":
    main()

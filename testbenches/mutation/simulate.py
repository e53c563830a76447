"""A block's testbench against its mutants."""

import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from t3sim.cosim.cocotb_run import build_simulation, run_cocotb
from t3sim.rtl.geometry import Geometry
from t3sim.testbenches.mutation.model import Model

_HOURS_S = 24 * 3600


def simulate(model: Model, geometry: Geometry, numbers: Sequence[int], seeds: Sequence[int], length: int,
             folder: Path) -> dict[int, dict]:
    """Return what `forked` says of each mutant: the first test that failed and how, or `test` None.

    A mutant that has its answer in `folder` is not run again. Raises CocotbFailure if the block without a mutant fails.
    """
    folder.mkdir(parents=True, exist_ok=True)

    def told() -> dict[int, dict]:
        return {number: json.loads(path.read_text()) for number in numbers
                if (path := folder / f"{number}.json").exists()}

    left = [number for number in numbers if number not in told()]
    if left:
        simulation = build_simulation(model.verilog, model.mutated_ports)
        (folder / "ports.json").write_text(model.ports.to_json())
        (folder / "run.json").write_text(json.dumps({"geometry": asdict(geometry), "length": length,
                                                     "rounds": None, "record": None}))
        (folder / "job.json").write_text(json.dumps({
            "testbench": f"t3sim.testbenches.tb_{model.block}", "mutants": left, "seeds": list(seeds),
            "processes": os.cpu_count()}))
        here = str(folder.resolve())
        run_cocotb(simulation, "t3sim.testbenches.mutation.forked", folder,
                   environment={"T3_BENCH": here, "T3_MUTANTS": here}, timeout_s=_HOURS_S)
    return told()

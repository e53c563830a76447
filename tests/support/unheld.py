"""Workgroups that wait for no inputs, in data mode."""

import pytest

from t3sim.runs.failure import SimulationError


def check_unheld_reads(run) -> None:
    """Let no workgroup of a data mode's run wait, and see that one reads what has not come; the run is closed."""
    try:
        needs = run.sim.kernel.work.needs
        assert (needs > 0).any()
        needs[needs > 0] = 0
        with pytest.raises(SimulationError, match="read of the GEMM's of an operand that has not come, at row"):
            run.run()
    finally:
        run.close()

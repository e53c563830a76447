"""`t3 run --kernel` with damaged and unlawful kernels."""

import os
import struct
import subprocess
import sys
import zipfile
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from t3sim.base import arrays as array_files
from t3sim.workload.operators.kernel_table import KernelTable
from tests.support import damaged_kernels as kernels
from tests.support.damage import answered, damaged

pytestmark = pytest.mark.builds_loops


def write(folder: Path, **changes) -> Path:
    table = kernels.small()
    arrays = {one.name: np.asarray(getattr(table, one.name)) for one in fields(KernelTable)} | changes
    np.savez_compressed(folder / "x.npz", **arrays)
    return folder / "x.npz"


def refused(capsys, path: Path) -> str:
    line = answered(capsys, ["run", "--kernel", path, "--machine", kernels.MACHINE], (2,))
    assert "x.npz" in line
    return line


@pytest.mark.slow
def test_whatever_is_accepted_stays_within_its_arrays(tmp_path):
    """Compiled once with numba's bounds checks, in a cache of their own, and run over all files in a process."""
    for name, arrays in kernels.changed():
        np.savez(tmp_path / f"{name}.npz", **arrays)
    environment = os.environ | {"NUMBA_BOUNDSCHECK": "1",
                                "NUMBA_CACHE_DIR": f"{os.environ['NUMBA_CACHE_DIR'].rstrip('/')}-bounds"}
    done = subprocess.run([sys.executable, "-m", "tests.support.damaged_kernels", str(tmp_path)], env=environment,
                          text=True, capture_output=True, timeout=800, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout) > 50, "most change nothing that is unlawful"


@pytest.mark.slow
def test_damaged(tmp_path, capsys):
    whole = write(tmp_path).read_bytes()
    for content in damaged(whole, 60):
        if content != whole:
            (tmp_path / "x.npz").write_bytes(content)  # what a reader does not look at may be flipped
            line = answered(capsys, ["run", "--kernel", tmp_path / "x.npz", "--machine", kernels.MACHINE], (0, 2))
            assert "x.npz" in line or not line


@pytest.mark.parametrize(("changes", "told"), [
    ({"arrivals": np.array([-1, 0])}, "arrivals: -1 to 0"),
    ({"arrivals": np.array([0, 9])}, "9 lines are expected, but the kernel sends itself 8: it would never end"),
    ({"signals": np.array([100])}, "signal 1 is set at 100, and 10 are counted for it"),
    ({"signals": np.zeros(0, np.int64), "raises": np.zeros(3, np.int64), "waits": np.zeros(0, kernels.WAIT)},
     "but signals is empty"),
    ({"waits": np.array([(0, 0), (0, 0), (0, 1)], kernels.WAIT)}, "waits[2]: first=0 and last=1"),
    ({"needs": np.array([0, 0, 0])}, "needs"),
    ({"ahead": np.array(1.5)}, "ahead must be one number, int"),
    ({"by_turn": np.array(True), "persistent": np.array(True)}, "by_turn and persistent cannot be combined"),
    ({"persistent": np.array(7)}, "persistent must be one number, true or false"),
    ({"launch_cycles": np.array(1e14)}, "cycles at least: at most"),
    ({"groups": kernels.small().groups.astype(object)}, "holds objects"),
    ({"wavefronts": np.array(1 << 40)}, "a workgroup of 1099511627776 wavefronts"),
    ({"launch_cycles": np.array(1e6)}, "launch_cycles=1e+06 is not possible: 0 to 40000"),
    ({"phase_launch_cycles": np.array(1e6)}, "phase_launch_cycles=1e+06 is not possible: 0 to 40000"),
])
def test_unlawful_values(changes, told, tmp_path, capsys):
    assert told in refused(capsys, write(tmp_path, **changes))


@pytest.mark.parametrize(("array", "column", "value", "told"), [
    ("loads", "base", 1 << 47, "loads[0] reaches from byte"), ("steps", "repeats", 1 << 40, "repeats="),
    ("steps", "repeats", 1 << 30, "lines, steps and workgroups: at most"),
    ("steps", "compute_cycles", 1e14, "cycles at least: at most"), ("stores", "wavefront", 99, "wavefront=99"),
    ("steps", "compute_cycles", 1e6, "compute_cycles=1e+06 is not possible: 0 to 40000"),
    ("stores", "id", -1, "id=-1"), ("stores", "part", -1, "part=-1"), ("stores", "peer", 1, "peer 0"),
])
def test_unlawful_columns(array, column, value, told, tmp_path, capsys):
    made = getattr(kernels.small(), array).copy()
    made[column][0] = value
    assert told in refused(capsys, write(tmp_path, **{array: made}))


def test_groups_that_wait_for_each_other(tmp_path, capsys):
    """Each signal is raised by the group that waits for the other."""
    waits = np.array([(1, 1), (2, 2), (0, 0)], kernels.WAIT)
    path = write(tmp_path, waits=waits, raises=np.array([2, 1, 0]), signals=np.array([1, 1]))
    line = answered(capsys, ["kernel", path, "--machine", kernels.MACHINE], (1,))
    assert "x.npz" in line and "wait for each other" in line


def test_many_groups_of_many_steps_are_looked_at_in_seconds(tmp_path, capsys):
    """Looking at each step of each group, and at each signal of each wait, would take years."""
    count, some, none = 1 << 20, 1 << 10, np.zeros(0, np.int64)
    stores = kernels.small().stores.copy()
    stores["id"] = 0
    alone = {"arrivals": np.array([0]), "waits": np.zeros(0, kernels.WAIT), "raises": none, "signals": none,
             "stores": stores}
    path = write(tmp_path, **alone, steps=kernels.rows_of(kernels.STEP, count, repeats=1),
                 groups=kernels.rows_of(kernels.GROUP, count, workgroups=1, steps=count))
    assert "lines, steps and workgroups: at most" in refused(capsys, path)
    path = write(tmp_path, **alone | {
        "groups": kernels.rows_of(kernels.GROUP, some, workgroups=1, steps=1), "raises": np.zeros(some, np.int64),
        "waits": kernels.rows_of(kernels.WAIT, some, first=1, last=count), "signals": (np.arange(count) == 77) * 1})
    assert "signal 78 is set at 1, and 0 are counted" in refused(capsys, path)


def test_archives_that_are_traps(tmp_path, capsys, monkeypatch):
    path = write(tmp_path)
    plain = path.read_bytes()
    encrypted = bytearray(plain)
    for mark, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        encrypted[encrypted.index(mark) + place] |= 1
    path.write_bytes(encrypted)
    assert "is encrypted" in refused(capsys, path)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("groups.npy", bytes(1 << 22))
    monkeypatch.setattr(array_files, "LARGEST_ARRAYS", 1 << 20)
    assert "its arrays take 4,194,304 bytes: at most 1,048,576" in refused(capsys, path)
    monkeypatch.undo()
    header = b"{'descr': '<i8', 'fortran_order': False, 'shape': (1099511627776,), }"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("groups.npy", b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header)
    assert "which does not match its bytes" in refused(capsys, path)
    with zipfile.ZipFile(path, "w") as archive:
        for number in range(100):
            archive.writestr(f"{number}.npy", b"")
    assert "100 arrays" in refused(capsys, path)

"""Every command keeps every distance, and every distance is reached: refused at t-1, accepted at t."""

from collections import defaultdict

import numpy as np
import pytest

from t3sim.gpu.hbm.channel import READ, STORE, UPDATE, hbm_enqueue, hbm_has_room, hbm_step
from t3sim.gpu.hbm.state import commands, make_hbm
from t3sim.machine import load_machine
from t3sim.machine.dram import Dram
from t3sim.testbenches.hbm_replay.configurations import configured
from t3sim.testbenches.hbm_replay.replay import replay_trace
from t3sim.testbenches.hbm_replay.trace import Trace

pytestmark = pytest.mark.builds_loops

REFERENCE = load_machine("hbm2-reference").dram


def rules(dram: Dram, updates: bool) -> dict[tuple[str, str, str], int]:
    """(command, later command, relation of their banks) -> least distance in cycles, straight from JEDEC's formulas."""
    burst = dram.burst_cycles
    long_write = dram.ccdwl_cycles if updates or dram.ccdwl_applies_to == "write" else dram.tccd_l_cycles
    write_end = dram.cwl_cycles + burst
    column = max(burst, dram.tccd_s_cycles)
    table = {
        ("ACT", "ACT", "same"): dram.trc_cycles,
        ("ACT", "ACT", "group"): dram.trrd_l_cycles,
        ("ACT", "ACT", "other"): dram.trrd_s_cycles,
        ("ACT", "RD", "same"): dram.trcdrd_cycles,
        ("ACT", "WR", "same"): dram.trcdwr_cycles,
        ("ACT", "PRE", "same"): dram.tras_cycles,
        ("PRE", "ACT", "same"): dram.trp_cycles,
        ("RD", "PRE", "same"): dram.trtp_cycles,
        ("WR", "PRE", "same"): write_end + dram.twr_cycles,
        ("RD", "RD", "other"): column,
        ("WR", "WR", "other"): column,
        ("RD", "WR", "other"): dram.cl_cycles + burst + dram.trtrs_cycles - dram.cwl_cycles,
        ("WR", "RD", "other"): write_end + dram.twtr_s_cycles,
    }
    for relation in ("same", "group"):
        table["RD", "RD", relation] = max(burst, dram.tccd_l_cycles)
        table["WR", "WR", relation] = max(burst, long_write)
        table["RD", "WR", relation] = table["RD", "WR", "other"]
        table["WR", "RD", relation] = write_end + dram.twtr_l_cycles
    return table


def observed(log: list, dram: Dram) -> dict:
    """Least distance of each pair of commands, plus those of the activate window and of refresh; checks rows too."""
    least = defaultdict(lambda: 1 << 30)
    last = {}  # (command, bank) -> cycle
    activates, open_banks = [], set()
    row_busy, column_busy = set(), set()

    def see(key, distance):
        least[key] = min(least[key], distance)

    for cycle, name, bank, _ in log:
        bus = column_busy if name in ("RD", "WR") else row_busy
        assert cycle not in bus, f"two commands on one bus in cycle {cycle}"
        bus.add(cycle)
        if name == "REFPB":
            assert bank not in open_banks
        if name == "REF":
            assert not open_banks
            for (earlier, _), when in last.items():
                if earlier in ("ACT", "PRE"):
                    see((earlier, "REF"), cycle - when)
            last = {("REF", -1): cycle}
            continue
        assert (bank in open_banks) == (name not in ("ACT", "REFPB")), f"{name} of bank {bank} in cycle {cycle}"
        for (earlier, other), when in last.items():
            if earlier == "REF":
                if name == "ACT":
                    see(("REF", "ACT"), cycle - when)
                continue
            group = other // dram.banks_per_group == bank // dram.banks_per_group
            see((earlier, name, "same" if other == bank else "group" if group else "other"), cycle - when)
        last[name, bank] = cycle
        if name == "ACT":
            activates.append(cycle)
            open_banks.add(bank)
            if len(activates) > 4:
                see("window", cycle - activates[-5])
        if name == "PRE":
            open_banks.remove(bank)
    return least


def run_load(dram: Dram, seed: int, ops: tuple[int, ...], cycles: int, spread: int, density: float) -> list:
    """Commands of one channel under random bursts on `spread` lines."""
    rng = np.random.default_rng(seed)
    state = make_hbm(dram, 1, log=True)
    base, op, left = 0, 0, 0
    for cycle in range(cycles):
        hbm_step(state, 0, cycle)
        if hbm_has_room(state, 0, cycle) and rng.random() < density:
            if left == 0:
                base, op, left = int(rng.integers(spread)), int(rng.choice(ops)), int(rng.integers(1, 12))
            hbm_enqueue(state, 0, cycle, base + left, op, 0)
            left -= 1
    return commands(state, 0)


DEFAULT = load_machine().dram
KINDS = {
    "default reads and updates": (DEFAULT, (READ, UPDATE), True),
    "default reads and stores": (DEFAULT, (READ, STORE), False),
    "reference": (REFERENCE.model_copy(update={"scheduler": "fr_fcfs"}), (READ, STORE), False),
    "reference ccdwl4": (configured(REFERENCE, "ccdwl4").model_copy(update={"scheduler": "fr_fcfs"}), (READ, STORE),
                         False),
    "reference ccdl4": (configured(REFERENCE, "ccdl4_bgil").model_copy(update={"scheduler": "fr_fcfs"}), (READ, STORE),
                        False),
    "all different": (DEFAULT.model_copy(update={
        "burst_cycles": 2, "tccd_l_cycles": 3, "ccdwl_cycles": 5, "trrd_s_cycles": 3, "trrd_l_cycles": 7,
        "tfaw_cycles": 24, "twtr_s_cycles": 4, "twtr_l_cycles": 9, "trtp_cycles": 6, "refresh_stagger": False}),
        (READ, UPDATE), True),
}


@pytest.mark.parametrize("kind", KINDS)
def test_distances_are_kept_and_tight(kind):
    dram, ops, updates = KINDS[kind]
    table = rules(dram, updates)
    least = defaultdict(lambda: 1 << 30)
    for seed, spread, density in ((1, 1 << 20, 0.5), (2, 1 << 11, 0.9), (3, 1 << 15, 0.05), (4, 1 << 9, 0.3),
                                  (5, 1 << 20, 0.02)):
        for key, value in observed(run_load(dram, seed, ops, 9000, spread, density), dram).items():
            least[key] = min(least[key], value)
    for key, distance in table.items():
        assert least[key] >= distance, f"{key} came after {least[key]} cycles"
        # row conflicts between a read and a write of one bank cost more than the column distance
        if key not in (("RD", "WR", "same"), ("WR", "RD", "same")):
            assert least[key] == distance, f"{key} never came closer than {least[key]} cycles"
    assert least["window"] == max(dram.tfaw_cycles, 4 * dram.trrd_s_cycles)
    assert least["REF", "ACT"] == dram.trfc_cycles
    assert least["PRE", "REF"] == dram.trp_cycles
    assert least["ACT", "REF"] >= dram.trc_cycles


HBM3 = load_machine("hbm3-reference").dram
PER_BANK = configured(HBM3, "refpb")


@pytest.mark.parametrize("dram", [
    PER_BANK.by_column, PER_BANK.model_copy(update={"scheduler": "fr_fcfs"}),
    DEFAULT.model_copy(update={"refresh": "per_bank"})], ids=["hbm3", "hbm3 lines", "hbm2"])
def test_distances_are_kept_when_banks_are_refreshed_one_by_one(dram):
    table = rules(dram, False) | {
        ("REFPB", "ACT", "same"): dram.trfc_cycles, ("REFPB", "ACT", "group"): dram.trrefd_cycles,
        ("REFPB", "ACT", "other"): dram.trrefd_cycles, ("PRE", "REFPB", "same"): dram.trp_cycles,
        ("ACT", "REFPB", "same"): dram.trc_cycles, ("ACT", "REFPB", "other"): dram.trrd_s_cycles}
    least = defaultdict(lambda: 1 << 30)
    refreshes = 0
    for seed, spread, density in ((1, 1 << 20, 0.5), (2, 1 << 11, 0.9), (3, 1 << 15, 0.05), (4, 1 << 9, 0.3)):
        log = run_load(dram, seed, (READ, STORE), 15000, spread, density)
        refreshes += sum(name == "REFPB" for _, name, *_ in log)
        for key, value in observed(log, dram).items():
            least[key] = min(least[key], value)
    assert refreshes == 4 * (15000 // dram.refresh_interval_cycles)
    for key, distance in table.items():
        assert least[key] >= distance, f"{key} came after {least[key]} cycles"
    for key in (("REFPB", "ACT", "same"), ("PRE", "REFPB", "same"), ("ACT", "RD", "same"), ("RD", "RD", "group")):
        assert least[key] == table[key], f"{key} never came closer than {least[key]} cycles"


def test_random_reads_lose_less_to_refresh_per_bank():
    lines = np.random.default_rng(1).integers(0, 1 << 24, 20000)
    trace = Trace.of(lines, [0] * 20000, [0] * 20000)
    once, one_by_one = (replay_trace(trace, configured(HBM3, name).by_column).cycles for name in ("base", "refpb"))
    assert once > 1.03 * one_by_one


def test_gpgpusim_scheduler_keeps_distances():
    """Random requests: no two commands are closer than the timing allows."""
    dram = DEFAULT.model_copy(update={"scheduler": "gpgpusim", "trefi_cycles": 0})
    least = defaultdict(lambda: 1 << 30)
    for seed, spread, density in ((1, 1 << 20, 0.5), (2, 1 << 11, 0.9), (3, 1 << 15, 0.05), (4, 1 << 9, 0.3)):
        for key, value in observed(run_load(dram, seed, (READ, UPDATE), 9000, spread, density), dram).items():
            least[key] = min(least[key], value)
    for key, distance in rules(dram, updates=True).items():
        assert least[key] >= distance, f"{key} came after {least[key]} cycles"
    assert not any("REF" in key for key in least)


@pytest.mark.parametrize("workload_seed", [1, 2])
@pytest.mark.parametrize("config", ["base", "ccdwl4", "ccdl4_bgil"])
def test_dramsim3_scheduler_keeps_distances(config, workload_seed):
    dram = configured(REFERENCE, config)
    rng = np.random.default_rng(workload_seed)
    n = 4000
    lines = (rng.integers(0, 1 << 18, n // 8)[:, None] + np.arange(8)).reshape(-1)
    ops = np.repeat(rng.integers(0, 2, n // 16), 16)
    log = commands(replay_trace(Trace.of(lines, ops, np.zeros(n)), dram, log=True).state, 0)
    least = observed(log, dram)
    for key, distance in rules(dram, False).items():
        assert least[key] >= distance, f"{key} came after {least[key]} cycles"
    assert least["window"] == dram.tfaw_cycles


def column_cycles(dram: Dram, requests: list[tuple[int, int]]) -> list[int]:
    """Cycles of the column commands of requests (line, op), all queued at cycle 0."""
    state = make_hbm(dram, 1, log=True)
    for line, op in requests:
        hbm_enqueue(state, 0, 0, line, op, 0)
    for cycle in range(400):
        hbm_step(state, 0, cycle)
    return [cycle for cycle, name, *_ in commands(state, 0) if name in ("RD", "WR")]


def test_ccdwl_follows_updates_only():
    """Two columns per request; lines 16 apart share a bank group without the hash."""
    dram = DEFAULT.model_copy(update={"bank_hash": False})
    read, store, update = (np.diff(column_cycles(dram, [(0, op), (16, op)])).tolist() for op in (READ, STORE, UPDATE))
    assert (read, store, update) == ([2] * 3, [2] * 3, [4] * 3)
    everything = dram.model_copy(update={"ccdwl_applies_to": "write"})
    assert np.diff(column_cycles(everything, [(0, STORE), (16, STORE)])).tolist() == [4] * 3


def test_idle_latency():
    dram = DEFAULT
    first, second = column_cycles(dram, [(0, READ)])
    assert (first, second) == (dram.trcdrd_cycles, dram.trcdrd_cycles + dram.tccd_l_cycles)
    assert make_hbm(dram, 1).read_data_cycles == dram.cl_cycles + dram.burst_cycles


@pytest.mark.parametrize("stagger", [False, True])
def test_refresh_comes_every_interval(stagger):
    dram = DEFAULT.model_copy(update={"refresh_stagger": stagger})
    state = make_hbm(dram, 4, log=True)
    for cycle in range(20 * dram.trefi_cycles + dram.trefi_cycles // 2):
        for channel in range(4):
            hbm_step(state, channel, cycle)
    for channel in range(4):
        when = [cycle for cycle, name, *_ in commands(state, channel) if name == "REF"]
        offset = channel * dram.trefi_cycles // 32 if stagger else 0
        assert when == [dram.trefi_cycles * i + offset for i in range(1, 21)]


def test_no_refresh():
    dram = DEFAULT.model_copy(update={"trefi_cycles": 0})
    state = make_hbm(dram, 1)
    assert state.next_cycle[0] > 1 << 60

"""The unified queue: nothing lost, nothing late, same-line order, bandwidth, and the calls that may be left out."""

import numpy as np
import pytest

from t3sim.gpu.hbm.channel import READ, STORE, UPDATE, hbm_enqueue, hbm_has_room, hbm_step
from t3sim.gpu.hbm.state import commands, make_hbm
from t3sim.machine import load_machine
from t3sim.testbenches.hbm_replay.benchmark import loads, timed_load

pytestmark = pytest.mark.builds_loops

DRAM = load_machine().dram
GPGPUSIM = DRAM.model_copy(update={"scheduler": "gpgpusim", "trefi_cycles": 0})


def drive(dram, seed, requests, lines, writes, density, lazy=False):
    """Random requests; returns (state, [(line, op)], arrival cycle, cycle of last column command) per request."""
    rng = np.random.default_rng(seed)
    state = make_hbm(dram, 1, log=True)
    what, came, went = [], [], [-1] * requests
    gap = 0
    cycle = served = 0
    while served < requests:
        if not lazy or cycle >= state.next_cycle[0]:
            token = hbm_step(state, 0, cycle)
            if token >= 0:
                assert went[token] < 0, "served twice"
                went[token] = cycle
                served += 1
        gap -= 1
        if gap <= 0 and len(what) < requests and hbm_has_room(state, 0, cycle):
            request = int(rng.integers(lines)), int(rng.integers(1, 3)) if rng.random() < writes else READ
            hbm_enqueue(state, 0, cycle, *request, len(what))
            what.append(request)
            came.append(cycle)
            gap = rng.geometric(density)
        cycle += 1
        assert cycle < 1_000_000, f"{requests - served} requests never served"
    assert state.occupancy[0] == 0
    return state, what, came, went


@pytest.mark.parametrize("dram", [DRAM, GPGPUSIM], ids=lambda dram: dram.scheduler)
@pytest.mark.parametrize("lines", [6, 300, 1 << 22])
@pytest.mark.parametrize("writes", [0.0, 0.05, 0.5, 1.0])
@pytest.mark.parametrize("density", [0.03, 0.9])
def test_each_served_once_and_same_line_in_order(lines, writes, density, dram):
    """Random requests, with each scheduler."""
    state, what, came, went = drive(dram, 7, 1500, lines, writes, density)
    newest = {}
    for number, (line, op) in enumerate(what):
        if line in newest:
            earlier, earlier_op = newest[line]
            assert went[earlier] < went[number], (
                f"{op} of line {line} overtook {earlier_op}: {earlier} -> {number}")
        newest[line] = number, op
    assert max(w - c for w, c in zip(went, came)) < 6000
    reads = sum(op == READ for _, op in what)
    channel = state.channels[0]
    assert (channel["columns_read"], channel["columns_written"]) == (2 * reads, 2 * (len(what) - reads))
    assert channel["busy_cycles"] == 2 * len(what)


@pytest.mark.parametrize("dram", [DRAM, GPGPUSIM], ids=lambda dram: dram.scheduler)
def test_steps_before_next_cycle_change_nothing(dram):
    every, lazy = (drive(dram, 3, 1500, 1 << 14, 0.3, 0.1, lazy=lazy) for lazy in (False, True))
    assert commands(every[0], 0) == commands(lazy[0], 0)
    assert every[3] == lazy[3]


def test_channels_are_independent():
    (lines, ops), other = loads(np.random.default_rng(2), 2, 512)["random reads and updates"], None
    _, both, done = timed_load(DRAM.model_copy(update={"refresh_stagger": False}), 2, 3000, lines, ops)
    for channel in range(2):
        _, other, alone = timed_load(DRAM.model_copy(update={"refresh_stagger": False}), 1, 3000,
                                     lines[channel:channel + 1], ops[channel:channel + 1])
        assert alone[0] == done[channel]
        for counter in ("activates", "precharges", "columns_read", "columns_written", "refreshes"):
            assert other.channels[0][counter] == both.channels[channel][counter]


def bandwidth(lines, op, dram=DRAM, cycles=8000):
    """Share of the peak bandwidth of one operation over a list of lines, repeated."""
    lines = np.asarray(lines, np.int64)[None]
    _, _, done = timed_load(dram, 1, cycles, lines, np.full_like(lines, op))
    return done[0] * 64 / cycles / dram.peak_bytes_per_cycle


NO_REFRESH = DRAM.model_copy(update={"trefi_cycles": 0})


@pytest.mark.parametrize("op", [READ, STORE, UPDATE])
def test_stream_reaches_full_bandwidth(op):
    """T3's op-and-store included: neighbouring lines rotate over the bank groups."""
    assert bandwidth(np.arange(1 << 14), op, NO_REFRESH) > 0.97
    assert bandwidth(np.arange(1 << 14), op) == pytest.approx(1 - (260 + 40) / 3900, abs=0.015)


def test_updates_of_one_bank_group_get_a_quarter():
    dram = NO_REFRESH.model_copy(update={"bank_hash": False})
    lines = np.arange(1 << 14)
    block = (1 << dram.column_low_bits) // dram.columns_per_request  # lines between changes of bank group
    lines = lines[lines // block % dram.bank_groups == 0]
    assert bandwidth(lines, UPDATE, dram) == pytest.approx(0.25, abs=0.01)
    assert bandwidth(lines, STORE, dram) == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize("stride", [1 << k for k in range(1, 15)])
def test_hash_keeps_strides_off_one_group(stride):
    assert bandwidth(np.arange(0, stride << 9, stride), STORE, NO_REFRESH) > 0.4


def test_a_lone_write_is_not_kept_waiting_by_reads():
    state = make_hbm(DRAM, 1)
    line, written = 0, -1
    for cycle in range(2000):
        if hbm_step(state, 0, cycle) == 1:
            written = cycle
            break
        while state.occupancy[0] < DRAM.queue_entries * 5 // 8:
            hbm_enqueue(state, 0, cycle, line, READ, 0)
            line += 1
        if cycle == 100:
            hbm_enqueue(state, 0, cycle, 1 << 20, STORE, 1)
    assert 0 < written - 100 < DRAM.write_wait_limit_cycles + 150


def test_a_lone_read_is_not_kept_waiting_by_writes():
    state = make_hbm(DRAM, 1)
    line, done = 0, -1
    for cycle in range(2000):
        if hbm_step(state, 0, cycle) == 1:
            done = cycle
            break
        while state.occupancy[0] < DRAM.queue_entries - 1:
            hbm_enqueue(state, 0, cycle, line, UPDATE, 0)
            line += 1
        if cycle == 200:
            hbm_enqueue(state, 0, cycle, 1 << 20, READ, 1)
    assert 0 < done - 200 < 250


def test_row_hits_do_not_starve_a_conflict():
    state = make_hbm(DRAM, 1)
    done = -1
    hits = [line for line in range(0, 128)]
    for cycle in range(4000):
        if hbm_step(state, 0, cycle) == 1:
            done = cycle
            break
        while state.occupancy[0] < DRAM.queue_entries * 3 // 4:
            hbm_enqueue(state, 0, cycle, hits[cycle % 128], READ, 0)
        if cycle == 100:
            hbm_enqueue(state, 0, cycle, (1 << 9) * 4096, READ, 1)
    assert 0 < done - 100 < 1500


@pytest.mark.parametrize(("field", "value"), [
    ("cl_cycles", 20), ("write_high_watermark", 20), ("write_wait_limit_cycles", 40), ("row_hit_limit", 1),
    ("bank_hash", False), ("trefi_cycles", 2000), ("trfc_cycles", 350), ("ccdwl_cycles", 8), ("tfaw_cycles", 40),
    ("twr_cycles", 20), ("trtp_cycles", 9), ("twtr_l_cycles", 9), ("trrd_l_cycles", 9), ("trtrs_cycles", 5),
    ("tccd_l_cycles", 4), ("trcdrd_cycles", 20), ("trcdwr_cycles", 20), ("trp_cycles", 20), ("cwl_cycles", 5)])
def test_every_parameter_counts(field, value):
    """No timing is silently ignored: the commands of a mixed load change."""
    change = {field: value}
    if field == "trp_cycles":
        change["trc_cycles"] = 53
    usual = drive(DRAM, 5, 1500, 1 << 12, 0.3, 0.5)
    changed = drive(type(DRAM)(**{**DRAM.model_dump(), **change}), 5, 1500, 1 << 12, 0.3, 0.5)
    assert commands(usual[0], 0) != commands(changed[0], 0)


# GPGPU-Sim's scheduler

def served(dram, requests, cycles=2000):
    """Tokens in the order in which requests (line, op), all queued in cycle 0, are done; and the state."""
    state = make_hbm(dram, 1, log=True)
    for token, (line, op) in enumerate(requests):
        hbm_enqueue(state, 0, 0, line, op, token)
    order = [token for cycle in range(cycles) if (token := hbm_step(state, 0, cycle)) >= 0]
    return order, state


def test_gpgpusim_serves_hits_of_the_open_row_first_then_the_oldest():
    """In one bank: rows 0, 1, 0, 2, 1 come; GPGPU-Sim's order is 0, 0, 1, 1, 2."""
    dram = GPGPUSIM.model_copy(update={"bank_hash": False})
    row = 1 << 9  # lines
    order, state = served(dram, [(0, READ), (row, READ), (1, READ), (2 * row, READ), (row + 1, READ)])
    assert order == [0, 2, 1, 4, 3]
    assert state.channels[0]["activates"] == 3 and state.channels[0]["precharges"] == 2


def test_gpgpusim_takes_a_column_per_cycle_out_of_the_queue_and_one_per_bank():
    """A line of two columns comes per cycle; eight banks take one each, and wait for their rows."""
    dram = GPGPUSIM.model_copy(update={"bank_hash": False})
    state = make_hbm(dram, 1)
    for token in range(16):
        hbm_enqueue(state, 0, 0, token * 4 % 16 + token // 4 % 2 * (1 << 7), READ, token)  # eight banks
    waiting, occupancy = [], []
    for cycle in range(14):
        hbm_step(state, 0, cycle)
        waiting.append(int(state.channels[0]["columns_waiting"]))
        occupancy.append(int(state.occupancy[0]))
    assert waiting == [0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 18]
    assert occupancy == [(columns + 1) // 2 for columns in waiting]


@pytest.mark.parametrize("latency", [1, 2, 71])
def test_gpgpusims_latency_queue_delays_what_the_arbiter_grants(latency):
    """It holds a column's bytes per cycle of its latency, and none of them counts as the queue's occupancy."""
    dram = GPGPUSIM.model_copy(update={"bank_hash": False, "entry_latency_cycles": latency})
    direct, _ = served_at(GPGPUSIM.model_copy(update={"bank_hash": False}), 1)
    assert served_at(dram, 1)[0] == [direct[0] + latency]
    state, came = make_hbm(dram, 1), 0
    for cycle in range(latency + 1):
        hbm_step(state, 0, cycle)
        assert state.occupancy[0] == 0
        assert hbm_has_room(state, 0, cycle) == (cycle % 2 == 0)
        if hbm_has_room(state, 0, cycle):
            hbm_enqueue(state, 0, cycle, came * (1 << 9), READ, came)
            came += 1
    assert came == dram.coming_requests
    hbm_step(state, 0, latency + 1)
    assert state.occupancy[0] == 1 and state.channels[0]["columns_waiting"] == 1


def test_gpgpusim_holds_as_many_bytes_as_its_queues_and_banks():
    """Rows of one bank, each another: 64 columns wait in the queue, one in the bank and 71 cycles' on the way there."""
    dram = GPGPUSIM.model_copy(update={"bank_hash": False, "entry_latency_cycles": 71})
    times, most = served_at(dram, 300)
    assert times == sorted(times) and most == dram.queue_entries + dram.coming_requests
    assert most < dram.held_requests


def served_at(dram, requests):
    """When each of many requests of a bank's rows is done, offered in every cycle; how many it held at most."""
    state, times, came, most, cycle = make_hbm(dram, 1), [], 0, 0, 0
    while len(times) < requests:
        if hbm_step(state, 0, cycle) >= 0:
            times.append(cycle)
        if came < requests and hbm_has_room(state, 0, cycle):
            hbm_enqueue(state, 0, cycle, came * (1 << 9), READ, came)
            came += 1
        most = max(most, came - len(times))
        cycle += 1
    return times, most


def test_gpgpusim_does_not_batch_writes():
    """Reads and writes of different banks in turn: the bus turns for nearly each, where batches turn a few times."""
    requests = [(token * 4, STORE if token % 2 else READ) for token in range(DRAM.queue_entries * 3 // 4)]
    turns = {}
    for dram in (DRAM.model_copy(update={"trefi_cycles": 0}), GPGPUSIM):
        _, state = served(dram, requests)
        kinds = [name for _, name, *_ in commands(state, 0) if name in ("RD", "WR")]
        turns[dram.scheduler] = sum(one != other for one, other in zip(kinds, kinds[1:]))
    assert turns["gpgpusim"] > 4 * turns["fr_fcfs"]

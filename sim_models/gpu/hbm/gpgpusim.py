"""FR-FCFS as GPGPU-Sim decides (dram_sched.cc, dram.cc, l2cache.cc of accel-sim/gpgpu-sim_distribution).

What an arbiter grants goes through a first-in-first-out queue of a fixed latency, one column's bytes per cycle, and
from there into the one queue of the scheduler. Arbiter and latency queue both wait for room in that one, which alone is
what the arbiter sees as occupancy.

The scheduler has no batches of writes. In each cycle one column access at most leaves its queue for a bank that has
none: of the oldest request of the row that the bank served last, else of the oldest. The bank keeps it until its column
command, so a write that waits for the bus to turn holds its bank. One column and one row command per cycle, banks in
turn; no limit to row hits, no refresh. Requests for one line are served in the order in which they came, for they share
a row.

Timing is that of `timing.py`, with one difference to GPGPU-Sim: a read holds back the precharge of its own bank, not
that of its bank group.
"""

import numpy as np

from t3sim.base.compiled.jit import compiled, inlined
from t3sim.gpu.hbm.address import bank_of
from t3sim.gpu.hbm.bits import item, put
from t3sim.gpu.hbm.state import ACT, AGE, COLUMNS_LEFT, FIELDS, LINE, NEVER, NEXT, NOWHERE, OP, PRE, RD, ROW, TOKEN, WR
from t3sim.gpu.hbm.timing import (
    activate,
    activate_ready,
    log_command,
    precharge,
    read_column,
    read_ready,
    write_column,
    write_ready,
)


@compiled
def enqueue(config: np.record, channel: np.record, cycle: int, row: int, line: int, op: int, token: int) -> None:
    """Append one request to the latency queue; the caller has checked that there is room."""
    entry = channel.free
    channel.free = item(channel, "entries", entry * FIELDS + NEXT)
    put(channel, "entries", entry * FIELDS + NEXT, NOWHERE)
    put(channel, "entries", entry * FIELDS + ROW, row)
    put(channel, "entries", entry * FIELDS + LINE, line)
    put(channel, "entries", entry * FIELDS + OP, op)
    put(channel, "entries", entry * FIELDS + TOKEN, token)
    put(channel, "entries", entry * FIELDS + COLUMNS_LEFT, config.columns_per_request)
    arrives = cycle + 1 + config.entry_latency
    put(channel, "entries", entry * FIELDS + AGE, arrives)
    if channel.coming >= 0:
        put(channel, "entries", channel.last_coming * FIELDS + NEXT, entry)
    else:
        channel.coming = entry
    channel.last_coming = entry
    channel.entry_next = cycle + config.columns_per_request
    channel.next_cycle = min(channel.next_cycle, arrives)


@inlined
def _arrive(config: np.record, channel: np.record, cycle: int) -> None:
    """Move the head of the latency queue to the scheduler's, if it is there and all its columns have room."""
    entry = channel.coming
    room = channel.columns_waiting <= (config.entries - 1) * config.columns_per_request
    if room and entry >= 0 and item(channel, "entries", entry * FIELDS + AGE) <= cycle:
        channel.coming = item(channel, "entries", entry * FIELDS + NEXT)
        put(channel, "entries", entry * FIELDS + NEXT, NOWHERE)
        bank = bank_of(config, item(channel, "entries", entry * FIELDS + LINE))
        last = item(channel, "tail", bank)
        put(channel, "tail", bank, entry)
        if last >= 0:
            put(channel, "entries", last * FIELDS + NEXT, entry)
        else:
            put(channel, "head", bank, entry)
        channel.columns_waiting += config.columns_per_request
        channel.reads += 1  # of both kinds, in the queue or in a bank


@inlined
def _take(channel: np.record, bank: int) -> int:
    """Take a column access of a bank's next request: the oldest of its open row, else the oldest.

    The request leaves the queue with its last one.
    """
    row = item(channel, "open_row", bank)
    before, entry = NOWHERE, item(channel, "head", bank)
    while entry >= 0 and item(channel, "entries", entry * FIELDS + ROW) != row:
        before = entry
        entry = item(channel, "entries", entry * FIELDS + NEXT)
    if entry < 0:
        before, entry = NOWHERE, item(channel, "head", bank)
    left = item(channel, "entries", entry * FIELDS + COLUMNS_LEFT) - 1
    put(channel, "entries", entry * FIELDS + COLUMNS_LEFT, left)
    if left:
        return entry
    after = item(channel, "entries", entry * FIELDS + NEXT)
    if before >= 0:
        put(channel, "entries", before * FIELDS + NEXT, after)
    else:
        put(channel, "head", bank, after)
    if after < 0:
        put(channel, "tail", bank, before)
    return entry


@inlined
def _turned(bank: int, banks: int) -> int:
    return bank - banks if bank >= banks else bank


@compiled
def step(config: np.record, channel: np.record, cycle: int) -> int:
    """Step one memory cycle in which something may happen; return a finished request's token or -1."""
    banks, first = config.banks, channel.first_bank
    _arrive(config, channel, cycle)
    for place in range(banks):
        bank = _turned(first + place, banks)
        if item(channel, "hit", bank) < 0 and item(channel, "head", bank) >= 0:
            put(channel, "hit", bank, _take(channel, bank))
            channel.columns_waiting -= 1
            first = _turned(first + 1, banks)
            break
    token = -1
    for place in range(banks):
        bank = _turned(first + place, banks)
        entry = item(channel, "hit", bank)
        if entry < 0 or item(channel, "open_row", bank) != item(channel, "entries", entry * FIELDS + ROW):
            continue
        op = item(channel, "entries", entry * FIELDS + OP)
        if (read_ready(config, channel, bank) if op == 0 else write_ready(config, channel, bank)) > cycle:
            continue
        if op == 0:
            read_column(config, channel, cycle, bank)
        else:
            write_column(config, channel, cycle, bank, op == 2)
        if channel.log_entries:
            log_command(channel, cycle, WR if op else RD, bank, item(channel, "entries", entry * FIELDS + LINE))
        put(channel, "hit", bank, NOWHERE)
        if item(channel, "entries", entry * FIELDS + COLUMNS_LEFT) == 0:
            token = item(channel, "entries", entry * FIELDS + TOKEN)
            put(channel, "entries", entry * FIELDS + NEXT, channel.free)
            channel.free = entry
            channel.reads -= 1
        break
    for place in range(banks):
        bank = _turned(first + place, banks)
        entry = item(channel, "hit", bank)
        if entry < 0:
            continue
        row = item(channel, "entries", entry * FIELDS + ROW)
        if item(channel, "open_row", bank) == row:
            continue
        if channel.open >> bank & 1:
            if item(channel, "bank_pre_ready", bank) > cycle:
                continue
            precharge(config, channel, cycle, bank)
            if channel.log_entries:
                log_command(channel, cycle, PRE, bank, 0)
        else:
            if activate_ready(config, channel, bank) > cycle:
                continue
            activate(config, channel, cycle, bank, row)
            if channel.log_entries:
                log_command(channel, cycle, ACT, bank, row)
        first = _turned(bank + 1, banks)
        break
    channel.first_bank = first
    # The queue is as the arbiter sees it in the next cycle, before something arrives.
    channel.occupancy = (channel.columns_waiting + config.columns_per_request - 1) // config.columns_per_request
    channel.next_cycle = NEVER
    if channel.reads:
        channel.next_cycle = cycle + 1
    elif channel.coming >= 0:
        channel.next_cycle = max(cycle + 1, item(channel, "entries", channel.coming * FIELDS + AGE))
    return token

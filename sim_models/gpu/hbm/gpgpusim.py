"""FR-FCFS as GPGPU-Sim decides (dram_sched.cc, dram.cc of accel-sim/gpgpu-sim_distribution).

One queue, no batches of writes. In each cycle one request at most leaves it for a bank that has none: the oldest of the
row that the bank served last, else the oldest. The bank keeps its request until the last column command, so a write
that waits for the bus to turn holds its bank. One column and one row command per cycle, banks in turn; no limit to row
hits, no refresh. Requests for one line are served in the order in which they came, for they share a row.

Timing is that of `timing.py`, with one difference to GPGPU-Sim: a read holds back the precharge of its own bank, not
that of its bank group.
"""

import numpy as np

from t3sim.base.compiled.jit import compiled, inlined
from t3sim.gpu.hbm.bits import item, put
from t3sim.gpu.hbm.state import ACT, COLUMNS_LEFT, FIELDS, LINE, NEVER, NEXT, NOWHERE, OP, PRE, RD, ROW, TOKEN, WR
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
def enqueue(config: np.record, channel: np.record, cycle: int, row: int, bank: int, line: int, op: int,
            token: int) -> None:
    """Append one request; the caller has checked that there is room."""
    entry = channel.free
    channel.free = item(channel, "entries", entry * FIELDS + NEXT)
    last = item(channel, "tail", bank)
    put(channel, "entries", entry * FIELDS + NEXT, NOWHERE)
    put(channel, "entries", entry * FIELDS + ROW, row)
    put(channel, "entries", entry * FIELDS + LINE, line)
    put(channel, "entries", entry * FIELDS + OP, op)
    put(channel, "entries", entry * FIELDS + TOKEN, token)
    put(channel, "entries", entry * FIELDS + COLUMNS_LEFT, config.columns_per_request)
    put(channel, "tail", bank, entry)
    if last >= 0:
        put(channel, "entries", last * FIELDS + NEXT, entry)
    else:
        put(channel, "head", bank, entry)
    channel.occupancy += 1
    channel.reads += 1  # of both kinds, in the queue or in a bank
    channel.next_cycle = min(channel.next_cycle, cycle)


@inlined
def _take(channel: np.record, bank: int) -> int:
    """Unlink a bank's next request: the oldest of its open row, else the oldest."""
    row = item(channel, "open_row", bank)
    before, entry = NOWHERE, item(channel, "head", bank)
    while entry >= 0 and item(channel, "entries", entry * FIELDS + ROW) != row:
        before = entry
        entry = item(channel, "entries", entry * FIELDS + NEXT)
    if entry < 0:
        before, entry = NOWHERE, item(channel, "head", bank)
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
    for place in range(banks):
        bank = _turned(first + place, banks)
        if item(channel, "hit", bank) < 0 and item(channel, "head", bank) >= 0:
            put(channel, "hit", bank, _take(channel, bank))
            channel.occupancy -= 1
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
        left = item(channel, "entries", entry * FIELDS + COLUMNS_LEFT) - 1
        put(channel, "entries", entry * FIELDS + COLUMNS_LEFT, left)
        if left == 0:
            token = item(channel, "entries", entry * FIELDS + TOKEN)
            put(channel, "hit", bank, NOWHERE)
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
    channel.next_cycle = cycle + 1 if channel.reads else NEVER
    return token

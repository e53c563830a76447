"""First-ready, first-come first-served over one unified queue, with reads and writes served in turn.

Row hits go before other requests, older before younger. Requests wait in two lists per bank, reads and writes. Reads
are preferred; writes go when there is no read, or in a *drain*, which begins when `write_high_watermark` writes are
queued or writes have waited for `write_wait_limit_cycles`, and lasts for as many writes as were then present (less
`write_low_watermark`). Before the next drain as many reads go first as waited at the end of the last one. So neither
side starves and bus turnarounds are paid once per batch.

Refresh per bank takes, of the banks that have not had theirs in this round, one that nobody waits for, if there is one.

Order: requests for the same line are served in the order in which they came. A request that meets an older one of
the other kind for its line joins that one's list (and is served in the other kind's turn), where the same row keeps
its order.
"""

import numpy as np

from t3sim.base.compiled.by_reference import lowest_bit
from t3sim.base.compiled.jit import compiled, inlined
from t3sim.gpu.hbm.bits import SCAN, earliest_ready, item, oldest_ready, put
from t3sim.gpu.hbm.state import (
    ACT,
    AGE,
    COLUMNS_LEFT,
    FIELDS,
    LANES,
    LINE,
    NEVER,
    NEXT,
    NOWHERE,
    OP,
    PRE,
    PREVIOUS,
    RD,
    REF,
    REFPB,
    ROW,
    TOKEN,
    WR,
)
from t3sim.gpu.hbm.timing import (
    activate,
    all_closed_ready,
    bank_refresh_ready,
    channel_activate_ready,
    choose_bank_to_refresh,
    log_command,
    precharge,
    read_column,
    read_ready,
    refresh,
    refresh_bank,
    refresh_bank_to_close,
    write_column,
    write_ready,
)

READS, WRITES = 0, 1
PREPARE = 8  #: rows are opened for writes when so many are missing for a drain


@inlined
def _set_hit(channel: np.record, side: int, banks: int, bank: int, entry: int) -> None:
    """Make `entry` (or none) the next request of `side` that the open row of `bank` serves."""
    bit = 1 << bank
    put(channel, "hit", side * banks + bank, entry)
    put(channel, "hit_order", side * LANES + bank,
        item(channel, "entries", entry * FIELDS + AGE) * LANES + bank if entry >= 0 else NEVER)
    foreign = entry >= 0 and (item(channel, "entries", entry * FIELDS + OP) != 0) != (side == WRITES)
    if side == READS:
        channel.hit_read = channel.hit_read | bit if entry >= 0 else channel.hit_read & ~bit
        channel.foreign = channel.foreign | bit if foreign else channel.foreign & ~bit
    else:
        channel.hit_write = channel.hit_write | bit if entry >= 0 else channel.hit_write & ~bit
        channel.foreign = channel.foreign | bit << 32 if foreign else channel.foreign & ~(bit << 32)


@inlined
def _find_hit(channel: np.record, entry: int, row: int) -> int:
    """Return the first entry from `entry` on, in age order, for `row`."""
    while entry >= 0 and item(channel, "entries", entry * FIELDS + ROW) != row:
        entry = item(channel, "entries", entry * FIELDS + NEXT)
    return entry


@compiled
def enqueue(config: np.record, channel: np.record, cycle: int, row: int, bank: int, line: int, op: int,
            token: int) -> None:
    """Append one request; the caller has checked that there is room."""
    banks = config.banks
    entry = channel.free
    channel.free = item(channel, "entries", entry * FIELDS + NEXT)
    side = WRITES if op else READS
    other = item(channel, "head", (1 - side) * banks + bank)
    while other >= 0:
        if item(channel, "entries", other * FIELDS + LINE) == line:
            side = 1 - side
            break
        other = item(channel, "entries", other * FIELDS + NEXT)
    place = side * banks + bank
    last = item(channel, "tail", place)
    put(channel, "entries", entry * FIELDS + NEXT, NOWHERE)
    put(channel, "entries", entry * FIELDS + PREVIOUS, last)
    put(channel, "entries", entry * FIELDS + ROW, row)
    put(channel, "entries", entry * FIELDS + LINE, line)
    put(channel, "entries", entry * FIELDS + OP, op)
    put(channel, "entries", entry * FIELDS + TOKEN, token)
    put(channel, "entries", entry * FIELDS + COLUMNS_LEFT, config.columns_per_request)
    age = channel.age
    channel.age = age + 1
    put(channel, "entries", entry * FIELDS + AGE, age)
    put(channel, "tail", place, entry)
    channel.occupancy += 1
    if last >= 0:
        put(channel, "entries", last * FIELDS + NEXT, entry)
    else:
        put(channel, "head", place, entry)
        put(channel, "head_order", side * LANES + bank, age * LANES + bank)
        if side == READS:
            channel.pending_read |= 1 << bank
        else:
            channel.pending_write |= 1 << bank
    if side == READS:
        channel.reads += 1
    else:
        if channel.writes == 0:
            channel.write_waits_since = cycle
        channel.writes += 1
    wake = NEVER
    if item(channel, "hit", place) < 0:
        below_limit = last < 0 or item(channel, "hits_served", bank) < config.row_hit_limit
        if item(channel, "open_row", bank) == row and below_limit:
            _set_hit(channel, side, banks, bank, entry)
            if side == channel.direction:
                wake = max(item(channel, "column_ready", (LANES if op else 0) + bank), cycle)
                channel.column_next = min(channel.column_next, wake)
        elif last < 0:  # one more bank that wants a row
            channel.row_next = wake = cycle
    if side == WRITES and channel.writes + PREPARE == config.write_high:
        channel.row_next = wake = cycle
    channel.next_cycle = min(channel.next_cycle, min(wake, max(_next_turn(config, channel), cycle)))


@inlined
def _next_turn(config: np.record, channel: np.record) -> int:
    """Return the earliest cycle in which `_choose_direction` may decide otherwise than last.

    That is if no more requests come or go.
    """
    if channel.draining:
        return 0 if channel.drain_left <= 0 else NEVER
    if channel.writes == 0:
        return 0 if channel.direction == WRITES else NEVER
    if channel.reads == 0:
        return 0 if channel.direction == READS else NEVER
    if channel.direction == WRITES:
        return 0
    if channel.read_quota > 0:
        return NEVER
    return 0 if channel.writes >= config.write_high else channel.write_waits_since + config.write_wait_limit


@inlined
def _finish(config: np.record, channel: np.record, side: int, bank: int, entry: int) -> int:
    """Take a served request out of its list; returns its token."""
    banks = config.banks
    place = side * banks + bank
    before, after = item(channel, "entries", entry * FIELDS + PREVIOUS), item(channel, "entries", entry * FIELDS + NEXT)
    if before >= 0:
        put(channel, "entries", before * FIELDS + NEXT, after)
    else:
        put(channel, "head", place, after)
        put(channel, "head_order", side * LANES + bank,
            item(channel, "entries", after * FIELDS + AGE) * LANES + bank if after >= 0 else NEVER)
    if after >= 0:
        put(channel, "entries", after * FIELDS + PREVIOUS, before)
    else:
        put(channel, "tail", place, before)
    if before < 0 and after < 0:
        if side == READS:
            channel.pending_read &= ~(1 << bank)
        else:
            channel.pending_write &= ~(1 << bank)
    put(channel, "entries", entry * FIELDS + NEXT, channel.free)
    channel.free = entry
    channel.occupancy -= 1
    if side == READS:
        channel.reads -= 1
        channel.read_quota -= 1
    else:
        channel.writes -= 1
        channel.drain_left -= 1
    row = item(channel, "open_row", bank)
    served = item(channel, "hits_served", bank) + 1
    put(channel, "hits_served", bank, served)
    head = item(channel, "head", place)
    if served >= config.row_hit_limit and head >= 0 and item(channel, "entries", head * FIELDS + ROW) != row:
        hit = NOWHERE
    else:
        hit = _find_hit(channel, after, row)
    _set_hit(channel, side, banks, bank, hit)
    return item(channel, "entries", entry * FIELDS + TOKEN)


@inlined
def _choose_direction(config: np.record, channel: np.record, cycle: int) -> int:
    """Choose READS or WRITES for this cycle; begins and ends drains."""
    if channel.draining and (channel.drain_left <= 0 or channel.writes == 0):
        channel.draining = 0
        channel.read_quota = channel.reads
        channel.write_waits_since = cycle
    if channel.writes == 0:
        return READS
    if channel.draining or channel.reads == 0:
        return WRITES
    if channel.read_quota <= 0:
        if channel.writes >= config.write_high:
            channel.draining = 1
            channel.drain_left = channel.writes - config.write_low
            return WRITES
        if cycle >= channel.write_waits_since + config.write_wait_limit:
            channel.draining = 1
            channel.drain_left = channel.writes
            return WRITES
    return READS


@inlined
def _choose_column(config: np.record, channel: np.record, cycle: int, side: int) -> tuple[int, int]:
    """Return (bank of the oldest row hit that may go now or -1, earliest cycle of one if none may)."""
    if side == READS:
        hits, foreign, ready_from = channel.hit_read, channel.foreign & 0xFFFFFFFF, channel.read_ready
    else:
        hits, foreign, ready_from = channel.hit_write, channel.foreign >> 32, channel.write_ready
    if foreign:
        return _choose_mixed_column(config, channel, cycle, side, hits, foreign)
    if ready_from > cycle:
        return -1, (ready_from if hits else NEVER)
    best, earliest, first = NEVER, NEVER, 0
    while first < config.banks:
        place = side * LANES + first
        best = min(best, oldest_ready(channel, "column_ready", place, "column_ready", place, 0, hits >> first,
                                      "hit_order", place, cycle))
        first += SCAN
    if best < NEVER:
        return best & (LANES - 1), NEVER
    for first in range(0, config.banks, SCAN):
        place = side * LANES + first
        earliest = min(earliest, earliest_ready(channel, "column_ready", place, "column_ready", place, 0,
                                                hits >> first))
    return -1, earliest


@compiled
def _choose_mixed_column(config: np.record, channel: np.record, cycle: int, side: int, hits: int,
                         foreign: int) -> tuple[int, int]:
    """Choose a column where some hits of a read list are writes or the reverse."""
    best, earliest = NEVER, NEVER
    while hits:
        bank = lowest_bit(hits)
        hits &= hits - 1
        reads = (side == READS) != (foreign >> bank & 1 == 1)
        ready = read_ready(config, channel, bank) if reads else write_ready(config, channel, bank)
        if ready <= cycle:
            best = min(best, item(channel, "hit_order", side * LANES + bank))
        else:
            earliest = min(earliest, ready)
    return (best & (LANES - 1) if best < NEVER else -1), earliest


@inlined
def _next_column(config: np.record, channel: np.record, cycle: int, side: int, bank: int) -> int:
    """Return a cycle no later than the next column command of `side` after one of `bank` in `cycle`."""
    hits = channel.hit_read if side == READS else channel.hit_write
    if hits & ~(config.group_banks << (bank >> config.bank_bits << config.bank_bits)) or channel.foreign:
        return cycle + 1
    if hits == 0:
        return NEVER
    return item(channel, "column_ready", side * LANES + bank)


@compiled
def _choose_row(config: np.record, channel: np.record, cycle: int, side: int, candidates: int,
                earliest: int) -> tuple[int, int]:
    """Return (bank of the oldest request that an ACT or PRE helps now or -1, an earliest cycle if there is none).

    The cycle is no later than that of one.
    """
    is_open = channel.open
    gate = channel_activate_ready(config, channel)
    if gate > cycle and candidates & ~is_open:
        earliest = min(earliest, gate)
        candidates &= is_open
    if candidates == 0:
        return -1, earliest
    best, first = NEVER, 0
    while first < config.banks:
        best = min(best, oldest_ready(channel, "bank_act_ready", first, "bank_pre_ready", first, is_open >> first,
                                      candidates >> first, "head_order", side * LANES + first, cycle))
        first += SCAN
    if best < NEVER:
        return best & (LANES - 1), NEVER
    for first in range(0, config.banks, SCAN):
        earliest = min(earliest, earliest_ready(channel, "bank_act_ready", first, "bank_pre_ready", first,
                                                is_open >> first, candidates >> first))
    return -1, earliest


@compiled
def _step_refresh(config: np.record, channel: np.record, cycle: int) -> None:
    """Step a refresh that is due: close the banks, one PRE per cycle, then REF. Nothing else is issued meanwhile."""
    if channel.open:
        bank = refresh_bank_to_close(channel, cycle, config.banks)
        if bank < 0:
            channel.next_cycle = -1 - bank
            return
        precharge(config, channel, cycle, bank)
        _set_hit(channel, READS, config.banks, bank, NOWHERE)
        _set_hit(channel, WRITES, config.banks, bank, NOWHERE)
        if channel.log_entries:
            log_command(channel, cycle, PRE, bank, 0)
        channel.next_cycle = cycle + 1 if channel.open else all_closed_ready(config, channel)
        return
    ready = all_closed_ready(config, channel)
    if ready > cycle:
        channel.next_cycle = ready
        return
    refresh(config, channel, cycle)
    if channel.log_entries:
        log_command(channel, cycle, REF, 0, 0)
    channel.column_next = channel.row_next = cycle
    channel.next_cycle = min(channel.refresh_due, cycle + config.refresh_to_act)


@compiled
def _step_bank_refresh(config: np.record, channel: np.record, cycle: int) -> bool:
    """Step the refresh of one bank, which is not served meanwhile; tell whether it took this cycle's row command."""
    if channel.refreshing == 0:
        busy = channel.pending_read | channel.pending_write
        every = (1 << config.banks) - 1
        if (busy | channel.open | channel.refreshed) & every != every:
            busy |= channel.open  # a closed bank before one whose row may be asked for again
        bank = choose_bank_to_refresh(config, channel, busy)
        put(channel, "open_row", bank, NOWHERE)  # so that no request joins
        _set_hit(channel, READS, config.banks, bank, NOWHERE)
        _set_hit(channel, WRITES, config.banks, bank, NOWHERE)
    bank = lowest_bit(channel.refreshing)
    if channel.open >> bank & 1:
        ready = item(channel, "bank_pre_ready", bank)
        if ready <= cycle:
            precharge(config, channel, cycle, bank)
            if channel.log_entries:
                log_command(channel, cycle, PRE, bank, 0)
            channel.refresh_due = bank_refresh_ready(config, channel, bank)
            return True
    else:
        ready = bank_refresh_ready(config, channel, bank)
        if ready <= cycle:
            refresh_bank(config, channel, cycle, bank)
            if channel.log_entries:
                log_command(channel, cycle, REFPB, bank, 0)
            channel.row_next = cycle + 1
            return True
    channel.refresh_due = ready
    return False


@compiled
def step(config: np.record, channel: np.record, cycle: int) -> int:
    """Step one memory cycle in which something may happen; return a finished request's token or -1."""
    row_taken = False
    if cycle >= channel.refresh_due:
        if config.refresh_per_bank == 0:
            _step_refresh(config, channel, cycle)
            return -1
        row_taken = _step_bank_refresh(config, channel, cycle)
    banks = config.banks
    token = -1
    side = _choose_direction(config, channel, cycle)
    if side != channel.direction:
        channel.direction = side
        channel.column_next = channel.row_next = cycle

    if channel.column_next <= cycle:
        bank, earliest = _choose_column(config, channel, cycle, side)
        if bank >= 0:
            entry = item(channel, "hit", side * banks + bank)
            op = item(channel, "entries", entry * FIELDS + OP)
            if op == 0:
                read_column(config, channel, cycle, bank)
            else:
                write_column(config, channel, cycle, bank, op == 2)
                channel.write_waits_since = cycle
            if channel.log_entries:
                log_command(channel, cycle, WR if op else RD, bank, item(channel, "entries", entry * FIELDS + LINE))
            left = item(channel, "entries", entry * FIELDS + COLUMNS_LEFT) - 1
            put(channel, "entries", entry * FIELDS + COLUMNS_LEFT, left)
            if left == 0:
                token = _finish(config, channel, side, bank, entry)
                if item(channel, "hit", side * banks + bank) < 0:
                    channel.row_next = cycle
            channel.column_next = _next_column(config, channel, cycle, side, bank)
        else:
            channel.column_next = earliest

    if row_taken:
        channel.row_next = max(channel.row_next, cycle + 1)
    if channel.row_next <= cycle:
        if side == READS:
            pending, hits, other_pending, other_hits = (channel.pending_read, channel.hit_read, channel.pending_write,
                                                        channel.hit_write)
            # A row opened for writes too early would only be in the way of reads.
            prepare = channel.writes + PREPARE >= config.write_high or channel.reads == 0
        else:
            pending, hits, other_pending, other_hits = (channel.pending_write, channel.hit_write, channel.pending_read,
                                                        channel.hit_read)
            prepare = True
        bank, earliest = _choose_row(config, channel, cycle, side, pending & ~hits & ~channel.refreshing, NEVER)
        helped = side
        if bank < 0 and prepare:
            helped = 1 - side
            bank, earliest = _choose_row(config, channel, cycle, helped,
                                         other_pending & ~pending & ~other_hits & ~channel.refreshing, earliest)
        if bank >= 0:
            if channel.open >> bank & 1:
                precharge(config, channel, cycle, bank)
                _set_hit(channel, READS, banks, bank, NOWHERE)
                _set_hit(channel, WRITES, banks, bank, NOWHERE)
                if channel.log_entries:
                    log_command(channel, cycle, PRE, bank, 0)
            else:
                row = item(channel, "entries", item(channel, "head", helped * banks + bank) * FIELDS + ROW)
                activate(config, channel, cycle, bank, row)
                _set_hit(channel, READS, banks, bank, _find_hit(channel, item(channel, "head", bank), row))
                _set_hit(channel, WRITES, banks, bank, _find_hit(channel, item(channel, "head", banks + bank), row))
                channel.column_next = min(channel.column_next,
                                          cycle + max(1, min(config.act_to_read, config.act_to_write)))
                if channel.log_entries:
                    log_command(channel, cycle, ACT, bank, row)
            channel.row_next = cycle + 1
        else:
            channel.row_next = earliest

    following = min(min(channel.column_next, channel.row_next), channel.refresh_due)
    if following > cycle + 1:
        following = min(following, _next_turn(config, channel))
    channel.next_cycle = max(following, cycle + 1)
    return token

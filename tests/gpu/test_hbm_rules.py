"""Each timing rule by itself, for any timings: refused at t-1, accepted at t."""

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from t3sim.gpu.hbm import timing
from t3sim.gpu.hbm.channel import hbm_enqueue, hbm_step
from t3sim.gpu.hbm.state import commands, make_hbm
from t3sim.machine import load_machine
from t3sim.machine.dram import Dram

pytestmark = pytest.mark.builds_loops

REFERENCE = load_machine("hbm2-reference").dram.model_copy(update={"scheduler": "fr_fcfs"})
LONG_AGO, NOW = 1_000, 100_000
BANK = {"same": 5, "group": 6, "other": 9}  # with four banks per group


class Channel:
    """One channel, given commands by hand."""

    def __init__(self, dram: Dram) -> None:
        self.state = make_hbm(dram, 1)
        self.config, self.channel = self.state.config[0], self.state.channels[0]

    def issue(self, command: str, bank: int, cycle: int) -> None:
        if command == "ACT":
            timing.activate(self.config, self.channel, cycle, bank, 7)
        elif command == "PRE":
            timing.precharge(self.config, self.channel, cycle, bank)
        elif command == "RD":
            timing.read_column(self.config, self.channel, cycle, bank)
        elif command == "REF":
            timing.refresh(self.config, self.channel, cycle)
        elif command == "REFPB":
            timing.refresh_bank(self.config, self.channel, cycle, bank)
        else:
            timing.write_column(self.config, self.channel, cycle, bank, command == "UPDATE")

    def earliest(self, command: str, bank: int) -> int:
        if command == "ACT":
            return timing.activate_ready(self.config, self.channel, bank)
        if command == "PRE":
            return int(self.channel["bank_pre_ready"][bank])
        if command == "REF":
            return timing.all_closed_ready(self.config, self.channel)
        if command == "REFPB":
            return timing.bank_refresh_ready(self.config, self.channel, bank)
        ready = timing.read_ready if command == "RD" else timing.write_ready
        return ready(self.config, self.channel, bank)


def burst_and(dram: Dram, cycles: int) -> int:
    return max(dram.burst_cycles, cycles)


#: rule -> (first command, second, relation of their banks, least distance as JEDEC has it)
RULES = {
    "tRC": ("ACT", "ACT", "same", lambda d: d.trc_cycles),
    "tRRD_L": ("ACT", "ACT", "group", lambda d: d.trrd_l_cycles),
    "tRRD_S": ("ACT", "ACT", "other", lambda d: d.trrd_s_cycles),
    "tRCD read": ("ACT", "RD", "same", lambda d: d.trcdrd_cycles),
    "tRCD write": ("ACT", "WR", "same", lambda d: d.trcdwr_cycles),
    "tRAS": ("ACT", "PRE", "same", lambda d: d.tras_cycles),
    "tRP": ("PRE", "ACT", "same", lambda d: d.trp_cycles),
    "tRP before REF": ("PRE", "REF", "same", lambda d: d.trp_cycles),
    "tRC before REF": ("ACT", "REF", "same", lambda d: d.trc_cycles),
    "tRFC": ("REF", "ACT", "same", lambda d: d.trfc_cycles),
    "tRFCpb": ("REFPB", "ACT", "same", lambda d: d.trfc_cycles),
    "tRREFD": ("REFPB", "ACT", "group", lambda d: d.trrefd_cycles),
    "tRREFD, two refreshes": ("REFPB", "REFPB", "other", lambda d: d.trrefd_cycles),
    "tRP before REFpb": ("PRE", "REFPB", "same", lambda d: d.trp_cycles),
    "tRC before REFpb": ("ACT", "REFPB", "same", lambda d: d.trc_cycles),
    "tRRD before REFpb": ("ACT", "REFPB", "other", lambda d: d.trrd_s_cycles),
    "tRTP": ("RD", "PRE", "same", lambda d: d.trtp_cycles),
    "tWR": ("WR", "PRE", "same", lambda d: d.cwl_cycles + d.burst_cycles + d.twr_cycles),
    "tCCD_L read": ("RD", "RD", "group", lambda d: burst_and(d, d.tccd_l_cycles)),
    "tCCD_L read, same bank": ("RD", "RD", "same", lambda d: burst_and(d, d.tccd_l_cycles)),
    "tCCD_S read": ("RD", "RD", "other", lambda d: burst_and(d, d.tccd_s_cycles)),
    "tCCD_L write": ("WR", "WR", "group", lambda d: burst_and(d, d.tccd_l_cycles)),
    "tCCD_S write": ("WR", "WR", "other", lambda d: burst_and(d, d.tccd_s_cycles)),
    "CCDWL": ("UPDATE", "WR", "group", lambda d: burst_and(d, d.ccdwl_cycles)),
    "CCDWL, same bank": ("UPDATE", "UPDATE", "same", lambda d: burst_and(d, d.ccdwl_cycles)),
    "CCDWL binds its group only": ("UPDATE", "UPDATE", "other", lambda d: burst_and(d, d.tccd_s_cycles)),
    "tWTR_L": ("WR", "RD", "group", lambda d: d.cwl_cycles + d.burst_cycles + d.twtr_l_cycles),
    "tWTR_L, same bank": ("WR", "RD", "same", lambda d: d.cwl_cycles + d.burst_cycles + d.twtr_l_cycles),
    "tWTR_S": ("WR", "RD", "other", lambda d: d.cwl_cycles + d.burst_cycles + d.twtr_s_cycles),
    "tRTRS": ("RD", "WR", "other", lambda d: d.cl_cycles + d.burst_cycles + d.trtrs_cycles - d.cwl_cycles),
    "tRTRS, same bank": ("RD", "WR", "same", lambda d: d.cl_cycles + d.burst_cycles + d.trtrs_cycles - d.cwl_cycles),
}


@st.composite
def drams(draw) -> Dram:
    """Any timings that a channel may have."""
    short = st.integers(1, 12)
    values = {name: draw(st.integers(1, 60)) for name in (
        "cl_cycles", "trcdrd_cycles", "trcdwr_cycles", "trp_cycles", "twr_cycles", "trtp_cycles")}
    values["tras_cycles"] = draw(st.integers(25, 60))  # more than tRRD_L, as in any memory
    values |= {name: draw(short) for name in (
        "cwl_cycles", "trtrs_cycles", "tfaw_cycles", "trrefd_cycles")}
    for rule in ("tccd", "trrd", "twtr"):
        values[f"{rule}_s_cycles"] = draw(short)
        values[f"{rule}_l_cycles"] = values[f"{rule}_s_cycles"] + draw(st.integers(0, 9))
    values["ccdwl_cycles"] = values["tccd_l_cycles"] + draw(short)
    values["trc_cycles"] = values["tras_cycles"] + values["trp_cycles"] + draw(st.integers(0, 9))
    values |= {"burst_cycles": draw(st.integers(1, 4)), "trfc_cycles": draw(st.integers(200, 400)),
               "ccdwl_applies_to": "update", "refresh_stagger": False}
    try:
        return Dram(**{**REFERENCE.model_dump(), **values})
    except ValidationError:
        assume(False)


@pytest.mark.parametrize("rule", RULES)
@settings(max_examples=15, deadline=None)
@given(dram=drams())
def test_rule_is_tight(rule, dram):
    first, second, relation, distance = RULES[rule]
    channel = Channel(dram)
    if first in ("PRE", "RD", "WR", "UPDATE"):
        channel.issue("ACT", BANK["same"], LONG_AGO)
    if second in ("RD", "WR", "UPDATE") and relation != "same":
        channel.issue("ACT", BANK[relation], LONG_AGO + 200)
    assert channel.earliest(second, BANK[relation]) < NOW
    channel.issue(first, BANK["same"], NOW)
    kind = "WR" if second == "UPDATE" else second
    assert channel.earliest(kind, BANK[relation]) == NOW + distance(dram)


@settings(max_examples=15, deadline=None)
@given(dram=drams(), longer=st.integers(0, 9))
def test_reads_of_another_stack_id(dram, longer):
    """tCCDR: between dies of different stack IDs; within one the bank groups count."""
    distance = dram.tccd_s_cycles + longer
    dram = dram.model_copy(update={"stack_ids": 2, "tccd_r_cycles": distance})
    channel = Channel(dram)
    for number, bank in enumerate((1, 5, 9)):  # the first two are of one stack ID
        channel.issue("ACT", bank, LONG_AGO + 200 * number)
    channel.issue("RD", 5, NOW)
    assert channel.earliest("RD", 1) == NOW + burst_and(dram, dram.tccd_s_cycles)
    assert channel.earliest("RD", 9) == NOW + burst_and(dram, distance)


@settings(max_examples=15, deadline=None)
@given(dram=drams(), spare=st.integers(0, 9))
def test_activate_window_is_tight(dram, spare):
    """tFAW: the fifth activate waits for the first, not for the fourth."""
    dram = dram.model_copy(update={"tfaw_cycles": 4 * dram.trrd_l_cycles + spare})
    channel = Channel(dram)
    for number, bank in enumerate((0, 4, 8, 12)):
        channel.issue("ACT", bank, NOW + number * dram.trrd_s_cycles)
    assert channel.earliest("ACT", 3) == NOW + dram.tfaw_cycles


@pytest.mark.parametrize(("interval", "refresh"), [(3900, 260), (2000, 350), (1000, 200)])
def test_refresh_interval_is_tight(interval, refresh):
    """tREFI: REF of an idle channel comes in its cycle, and the next request's ACT tRFC later."""
    dram = REFERENCE.model_copy(update={"trefi_cycles": interval, "trfc_cycles": refresh})
    state = make_hbm(dram, 1, log=True)
    for cycle in range(3 * interval + 2 * refresh):
        hbm_step(state, 0, cycle)
        if cycle == 3 * interval:
            hbm_enqueue(state, 0, cycle, 0, 0, 0)
    log = commands(state, 0)
    assert [cycle for cycle, name, *_ in log if name == "REF"] == [interval, 2 * interval, 3 * interval]
    assert [cycle for cycle, name, *_ in log if name == "ACT"] == [3 * interval + refresh]


def refreshes(dram: Dram, requests: dict[int, int]) -> list[tuple[int, int]]:
    """Cycle and bank of every refresh of 17; `requests`: cycle -> line."""
    state = make_hbm(dram, 1, log=True)
    for cycle in range(17 * dram.refresh_interval_cycles + 20):
        hbm_step(state, 0, cycle)
        if cycle in requests:
            hbm_enqueue(state, 0, cycle, requests[cycle], 0, 0)
    return [(cycle, bank) for cycle, name, bank, _ in commands(state, 0) if name == "REFPB"]


def test_banks_are_refreshed_in_turn():
    """Each once in tREFI, a bank group after the other, stack ID by stack ID; those with an open row last."""
    dram = REFERENCE.model_copy(update={"refresh": "per_bank", "stack_ids": 2})
    interval = dram.trefi_cycles // 16
    order = [0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15]
    assert refreshes(dram, {}) == [(interval * (i + 1), bank) for i, bank in enumerate([*order, 0])]
    seen = refreshes(dram, {5: 32 * 4})
    assert [bank for _, bank in seen[:16]] == [bank for bank in order if bank != 4] + [4]
    assert seen[15][0] == 16 * interval + dram.trp_cycles  # closed first


def test_a_bank_in_refresh_is_not_served_others_are():
    dram = REFERENCE.model_copy(update={"refresh": "per_bank"})
    first = dram.refresh_interval_cycles
    state = make_hbm(dram, 1, log=True)
    for cycle in range(first + 2 * dram.trfc_cycles):
        hbm_step(state, 0, cycle)
        if cycle == first + dram.trrefd_cycles:
            hbm_enqueue(state, 0, cycle, 0, 0, 0)  # of the bank in refresh
            hbm_enqueue(state, 0, cycle, 32 * 15, 0, 0)
    assert [(cycle, bank) for cycle, name, bank, _ in commands(state, 0) if name == "ACT"] == [
        (first + dram.trrefd_cycles + 1, 15), (first + dram.trfc_cycles, 0)]

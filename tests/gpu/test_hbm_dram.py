"""The [dram] section: derived distances, and mistakes named."""

import numpy as np
import pytest
from pydantic import ValidationError

from t3sim.base.errors import BadInput
from t3sim.gpu.hbm.address import bank_of, line_of, row_of
from t3sim.gpu.hbm.state import make_hbm
from t3sim.machine import load_machine
from t3sim.machine.dram import Dram
from t3sim.testbenches.hbm_replay.configurations import configured
from t3sim.testbenches.hbm_replay.replay import replay
from t3sim.testbenches.hbm_replay.trace import Trace, read_trace, write_trace

pytestmark = pytest.mark.builds_loops

REFERENCE = load_machine("hbm2-reference").dram


def test_derived_distances_of_the_default():
    """As GPGPU-Sim derives them: tRTW = CL + burst + 2 - WL, tWTR = WL + burst + CDLR, tWTP = WL + burst + WR."""
    dram = Dram()
    assert (dram.read_to_write_cycles, dram.write_to_read_l_cycles, dram.write_to_precharge_cycles) == (15, 6, 15)
    assert dram.peak_bytes_per_cycle * dram.channels == 1024


@pytest.mark.parametrize(("change", "words"), [
    ({"trc_cycles": 40}, "trc_cycles = 40: less than tras_cycles + trp_cycles = 47"),
    ({"bank_groups": 3}, "bank_groups = 3: a power of two"),
    ({"bank_groups": 16}, "at most 32 banks"),
    ({"tccd_l_cycles": 0}, "tccd_l_cycles = 0: less than tccd_s_cycles = 1"),
    ({"ccdwl_cycles": 1}, "ccdwl_cycles = 1: less than tccd_l_cycles = 2"),
    ({"trefi_cycles": 200}, "no time is left between refreshes"),
    ({"write_low_watermark": 40}, "must be below write_high_watermark"),
    ({"write_high_watermark": 100}, "more than queue_entries"),
    ({"cwl_cycles": 30}, "write data would meet read data"),
    ({"column_bytes": 128}, "less than or equal to 64"),
    ({"stack_ids": 3}, "stack_ids = 3: must divide bank_groups = 4"),
    ({"stack_ids": 2, "tccd_r_cycles": 0}, "tccd_r_cycles = 0: less than tccd_s_cycles = 1"),
    ({"refresh": "per_bank", "trefi_cycles": 800}, "no time is left between refreshes of 16 banks"),
    ({"refresh": "per_bank", "trfc_cycles": 3890}, "no time is left between refreshes of a bank, trfc_cycles = 3890"),
    ({"scheduler": "gpgpusim"}, "trefi_cycles = 3900: the gpgpusim scheduler has no refresh, 0 is allowed"),
    ({"entry_latency_cycles": 71}, "entry_latency_cycles = 71: the fr_fcfs scheduler has none, 0 is allowed"),
    ({"address_fields": ("row", "bank")}, "are needed"),
    ({"address_fields": ("row", "bank_group_high", "column"), "bank_hash": False}, "are needed"),
    ({"address_fields": ("row", "bank", "bank_group_high", "bank_group", "column"), "bank_groups": 1},
     "one bank group has no bits"),
    ({"address_fields": ("row", "bank", "bank", "bank_group", "column")}, "named twice"),
    ({"address_fields": ("row", "column", "bank", "bank_group")}, "a column field must come last"),
    ({"column_low_bits": 0}, "column_low_bits = 0: 1 (one request) to 6"),
    ({"trp_ns": 14}, "Extra inputs"),
    ({"trp_cycles": 14.0}, "valid integer"),
])
def test_mistakes_are_named(change, words):
    with pytest.raises(ValidationError) as error:
        Dram(**change)
    assert words in str(error.value)


@pytest.mark.parametrize("config", ["base", "ccdl4_bgil"])
def test_line_of_is_the_inverse_of_the_address_map(config):
    dram = configured(REFERENCE, config)
    record = make_hbm(dram.model_copy(update={"scheduler": "fr_fcfs"}), 1).config[0]
    rng = np.random.default_rng(4)
    for _ in range(200):
        group, bank, row, column = (int(rng.integers(n)) for n in (4, 4, 32768, 32))
        line = line_of(dram, group, bank, row, column)
        assert (row_of(record, line), bank_of(record, line)) == (row, 4 * group + bank)


def test_gpgpusims_map_of_a_v100():
    """gpgpu_mem_addr_mapping without the channel: R...RBBBCCCBCCCSSSSS, bank groups in the bank's two low bits."""
    dram = load_machine("t3-accelsim").dram
    record = make_hbm(dram, 1).config[0]
    rng = np.random.default_rng(4)
    for line in rng.integers(0, 1 << 23, 200).tolist():
        bits = f"{line * 64:029b}"[::-1]
        bank = int(bits[14] + bits[13] + bits[12] + bits[8], 2)
        assert row_of(record, line) == int(bits[:14:-1], 2)
        assert bank_of(record, line) == bank % 4 * 4 + bank // 4
        assert line_of(dram, bank % 4, bank // 4, int(bits[:14:-1], 2), int(bits[11:8:-1] + bits[7:5:-1], 2)) == line


def test_hash_is_a_permutation_of_the_places():
    record = make_hbm(Dram(), 1).config[0]
    lines = np.arange(1 << 14)
    places = {(row_of(record, int(line)), bank_of(record, int(line))) for line in lines}
    assert len(places) == (1 << 14) // 32
    assert {bank_of(record, int(line)) // 4 for line in lines[:4]} == {0, 1, 2, 3}


def test_requests_of_one_column_are_for_replays_only():
    with pytest.raises(ValueError, match="scheduler = 'dramsim3', column_bytes = 32: its requests have one column"):
        make_hbm(load_machine("hbm3-reference").dram, 1)


def test_config_must_fit():
    with pytest.raises(BadInput, match="'ccdl5' is unknown: allowed are base, ccdwl4"):
        configured(REFERENCE, "ccdl5")
    with pytest.raises(BadInput, match="'ccdl4_bgil' does not fit this machine: address_fields"):
        configured(Dram(), "ccdl4_bgil")


def test_trace_file_round_trip(tmp_path):
    trace = Trace.of([1, 5, 1 << 23], [0, 1, 0], [0, 7, 7])
    write_trace(trace, tmp_path / "a.trc")
    assert (tmp_path / "a.trc").read_text().splitlines()[1] == "0x140 WRITE 7"
    assert all((a == b).all() for a, b in zip(trace, read_trace(tmp_path / "a.trc")))
    result = replay(tmp_path / "a.trc", REFERENCE)
    assert (result.requests, result.reads, result.writes) == (3, 2, 0)


@pytest.mark.parametrize(("address", "words"), [
    ("131072", "'131072' has no 0x: write 0x131072 if it is hexadecimal, or 0x20000 if it is decimal$"),
    ("1fc0", "'1fc0' has no 0x: write 0x1fc0 if it is hexadecimal$"),
    ("0", "'0' has no 0x: write 0x0 if it is hexadecimal, or 0x0 if it is decimal$")])
def test_an_address_without_0x_is_refused_for_it_may_be_decimal(tmp_path, address, words):
    (tmp_path / "b.trc").write_text(f"0x0 READ 0\n{address} READ 0\n")
    with pytest.raises(BadInput, match=f"b.trc:2: address {words}"):
        read_trace(tmp_path / "b.trc")


def test_case_means_nothing(tmp_path):
    for name, text in (("a", "0X1c0 Read 2\n0x380 write 4\n"), ("b", "0x1C0 READ 2\n0x380 WRITE 4\n")):
        (tmp_path / name).write_text(text)
    assert all((one == other).all() for one, other in zip(read_trace(tmp_path / "a"), read_trace(tmp_path / "b")))


@pytest.mark.parametrize("line", ["0x40 READ", "0x40 FETCH 3", "forty READ 3", "0x40 READ now", "1 2 3 4"])
def test_bad_trace_line_is_named(tmp_path, line):
    (tmp_path / "b.trc").write_text(f"0x0 READ 0\n{line}\n")
    with pytest.raises(BadInput, match="b.trc:2: expected '0xADDRESS"):
        read_trace(tmp_path / "b.trc")


def test_empty_trace():
    result = replay(Trace.of([], [], []), REFERENCE)
    assert (result.cycles, result.requests, result.bytes_per_cycle) == (0, 0, 0.0)

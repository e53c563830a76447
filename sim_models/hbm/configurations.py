"""The HBM2 channel against which the model is validated, and its variants."""

from __future__ import annotations

from sim_models.machine.dram import Dram

#: DRAMsim3's HBM2_8Gb_x128 file (one 128-bit legacy-mode channel at 1 GHz) with its controller. `trtp` and `trtrs` are that
#: simulator's built-in values, which it uses for HBM whatever the file says.
HBM2_REFERENCE = Dram(
    channels=32, bank_groups=4, banks_per_group=4, rows_per_bank=32768, row_bytes=2048, column_bytes=64, burst_cycles=2,
    cl_cycles=14, cwl_cycles=4, trcdrd_cycles=14, trcdwr_cycles=14, trp_cycles=14, tras_cycles=34, trc_cycles=48,
    tccd_s_cycles=1, tccd_l_cycles=2, ccdwl_cycles=2, ccdwl_applies_to="write", trrd_s_cycles=4, trrd_l_cycles=6,
    tfaw_cycles=30, twtr_s_cycles=6, twtr_l_cycles=8, twr_cycles=16, trtp_cycles=5, trtrs_cycles=2, trfc_cycles=260,
    trefi_cycles=3900, refresh_stagger=False, address_fields=("row", "bank_group", "bank", "column"), column_low_bits=0,
    bank_hash=False, scheduler="dramsim3", row_hit_limit=4)

_GROUP_LOW = {"address_fields": ("row", "bank", "column", "bank_group")}

#: what each variant changes: the write-to-write or every column distance within a bank group, the address map
CONFIGURATIONS: dict[str, dict[str, object]] = {
    "base": {},
    "ccdwl4": {"ccdwl_cycles": 4},
    "ccdwl4_bgil": {"ccdwl_cycles": 4, **_GROUP_LOW},
    "ccdl4": {"tccd_l_cycles": 4, "ccdwl_cycles": 4},
    "ccdl4_bgil": {"tccd_l_cycles": 4, "ccdwl_cycles": 4, **_GROUP_LOW},
}


def configured(dram: Dram, name: str) -> Dram:
    """`dram` with the changes of one of `CONFIGURATIONS`, checked again."""
    if name not in CONFIGURATIONS:
        raise ValueError(f"config {name!r}: one of {', '.join(CONFIGURATIONS)}")
    return Dram(**{**dram.model_dump(), **CONFIGURATIONS[name]})

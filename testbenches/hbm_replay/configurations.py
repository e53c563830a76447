"""Variants of a machine's DRAM, as `t3 hbm-replay --config` names them."""

from __future__ import annotations

from pydantic import ValidationError

from t3sim.base.errors import BadInput
from t3sim.machine.dram import Dram

_GROUP_LOW: dict[str, object] = {"address_fields": ("row", "bank", "column", "bank_group")}
_PER_BANK: dict[str, object] = {"refresh": "per_bank", "trfc_cycles": 320}  # Ramulator 2.1, HBM3_6400Mbps: nRFCpb

#: what each variant changes: the write-to-write or every column distance within a bank group, the address map, refresh
CONFIGS: dict[str, dict[str, object]] = {
    "base": {},
    "ccdwl4": {"ccdwl_cycles": 4},
    "ccdwl4_bgil": {"ccdwl_cycles": 4, **_GROUP_LOW},
    "ccdl4": {"tccd_l_cycles": 4, "ccdwl_cycles": 4},
    "ccdl4_bgil": {"tccd_l_cycles": 4, "ccdwl_cycles": 4, **_GROUP_LOW},
    "bgil": _GROUP_LOW,
    "refpb": _PER_BANK,
    "refpb_bgil": {**_PER_BANK, **_GROUP_LOW},
}

#: of each memory of `recorded`, the variants that its traces were recorded with
RECORDED = {"hbm2": ("base", "ccdwl4", "ccdwl4_bgil", "ccdl4", "ccdl4_bgil"),
            "hbm3": ("base", "bgil", "refpb", "refpb_bgil")}


def configured(dram: Dram, name: str) -> Dram:
    """Return `dram` with the changes of one of `CONFIGS`, checked again; BadInput if the two do not go together."""
    if name not in CONFIGS:
        raise BadInput(f"config {name!r} is unknown: allowed are {', '.join(CONFIGS)}")
    try:
        return Dram(**{**dram.model_dump(), **CONFIGS[name]})
    except ValidationError as error:
        reason = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise BadInput(f"config {name!r} does not fit this machine: {reason}") from None

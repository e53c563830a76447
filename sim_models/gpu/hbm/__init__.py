"""HBM2 channels: banks, bank groups, row buffers, refresh and a reordering controller, stepped cycle by cycle."""

from t3sim.gpu.hbm.channel import READ, STORE, UPDATE, hbm_enqueue, hbm_has_room, hbm_step
from t3sim.gpu.hbm.state import HbmState, make_hbm

__all__ = ["READ", "STORE", "UPDATE", "HbmState", "hbm_enqueue", "hbm_has_room", "hbm_step", "make_hbm"]

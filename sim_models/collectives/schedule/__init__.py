"""The schedule: each GPU's actions on each tile, computed once from operator, collective and topology.

Everything that depends on a GPU's role follows from it: register writes, the compute units' plan, mirroring, sums in
data mode, self-checks, traces.
"""

from t3sim.collectives.schedule.order_of_sums import FIXED_TERMS, most_terms
from t3sim.collectives.schedule.roles import (
           Action,
           Ids,
           Limits,
           Role,
           ScheduleError,
           ScheduleOptions,
           Shuffle,
           roles_of,
)
from t3sim.collectives.schedule.schedule import Schedule, Share
from t3sim.collectives.schedule.slices import sliced_schedule

__all__ = ["Action", "FIXED_TERMS", "Ids", "Limits", "Role", "Schedule", "ScheduleError", "ScheduleOptions", "Share",
           "Shuffle", "most_terms", "roles_of", "sliced_schedule"]

"""Max-min fair rates of flows that share resources."""

import numpy as np


def fair_rates(capacity: np.ndarray, flow: np.ndarray, resource: np.ndarray, weight: np.ndarray,
               flows: int) -> np.ndarray:
    """Return the rate of each flow, float64[flow], in bytes per ns.

    Entry i says that flow `flow[i]` uses `weight[i]` times its rate of resource `resource[i]`. All flows grow equally
    until a resource is full; its flows keep their rate, the others continue to grow (progressive filling). A flow
    without a resource has an infinite rate.
    """
    rates, growing = np.full(flows, np.inf), np.ones(flows, bool)
    free_capacity = capacity.astype(float).copy()
    while True:
        active = growing[flow]
        load = np.bincount(resource[active], weight[active], len(free_capacity))
        loaded = load > 0
        if not loaded.any():
            return rates
        level = np.min(free_capacity[loaded] / load[loaded])
        # Resources that are full at this level, but for rounding.
        full = loaded & (free_capacity <= level * load * (1 + 1e-12))
        finished = np.zeros(flows, bool)
        finished[flow[active & full[resource]]] = True
        rates[finished] = level
        growing &= ~finished
        # The other flows grow from 0 again in the remaining capacity.
        of_finished = finished[flow]
        free_capacity -= np.bincount(resource[of_finished], weight[of_finished] * level, len(free_capacity))
        free_capacity = np.maximum(free_capacity, 0.0)

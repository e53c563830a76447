"""Max-min fair rates of flows that share resources."""

import numpy as np


def fair_rates(capacity: np.ndarray, flow: np.ndarray, resource: np.ndarray, weight: np.ndarray,
               flows: int) -> np.ndarray:
    """Return the rate of each flow, float64[flow], in bytes per ns.

    Entry i says that flow `flow[i]` takes `weight[i]` times its rate of resource `resource[i]`. All flows grow alike
    until a resource is full; those that use it keep their rate, the others grow on (progressive filling). A flow that
    uses nothing is as fast as infinity.
    """
    rates, growing = np.full(flows, np.inf), np.ones(flows, bool)
    left = capacity.astype(float).copy()
    while True:
        active = growing[flow]
        load = np.bincount(resource[active], weight[active], len(left))
        used = load > 0
        if not used.any():
            return rates
        level = np.min(left[used] / load[used])
        # Resources that are full at this level, but for rounding.
        full = used & (left <= level * load * (1 + 1e-12))
        done = np.zeros(flows, bool)
        done[flow[active & full[resource]]] = True
        rates[done] = level
        growing &= ~done
        # What the finished flows take is gone for the others, who grow from zero again next to it.
        taken = done[flow]
        left -= np.bincount(resource[taken], weight[taken] * level, len(left))
        left = np.maximum(left, 0.0)

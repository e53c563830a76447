"""Resources of a GPU's stores to other GPUs: its port, and the links that CPUs or network cards share."""

from t3sim.machine import Machine


def host_of(node: Machine, rank: int) -> int:
    """Return the CPU of a GPU: half of a node's GPUs share one."""
    return rank // max(1, node.gpus // 2)


def store_bytes_per_ns(node: Machine) -> float:
    """Return the rate of compute units' stores over one link."""
    return node.link.bandwidth_gb_per_s * node.link.store_efficiency


def crossing_bytes_per_ns(node: Machine, distance: int) -> float:
    """Return a GPU's share of the rate between two CPUs while every GPU sends to the GPU this many ranks further."""
    distance %= node.gpus
    return node.link.between_hosts_gb_per_s / max(1, min(distance, node.gpus - distance, node.gpus // 2))


def direct_ns(node: Machine, ranks: int, part_bytes: float) -> float:
    """Return the time in which all GPUs of a node exchange a part with each other one, the next rank first."""
    if node.link.kind == "full":
        return part_bytes / store_bytes_per_ns(node)
    egress = Egress(node, 0)
    return max(egress.send(rank, part_bytes, 0.0) for rank in range(1, ranks))


class Egress:
    """Ports of one GPU. A message uses every port of its route; a port serves one message after the other."""

    def __init__(self, node: Machine, rank: int, crowd: float = 1.0, efficiency: float | None = None) -> None:
        """Take a node's ports; `crowd`: GPUs that store at the same one at once and share its port, on average.

        `efficiency`: of the links, that of stores if not given.
        """
        self.node, self.rank, self.crowd = node, rank, crowd
        self._rate = store_bytes_per_ns(node) if efficiency is None else node.link.bandwidth_gb_per_s * efficiency
        self._free: dict[tuple, float] = {}
        self.last_ns = 0.0  #: when the last message has arrived

    def send(self, to: int, size_bytes: float, now: float) -> float:
        """Return when the last byte has left."""
        departure_ns, ports = now, self._way(to)
        for port, rate, _ in ports:
            self._free[port] = max(self._free.get(port, 0.0), now) + size_bytes / rate
            departure_ns = max(departure_ns, self._free[port])
        self.last_ns = max(self.last_ns, departure_ns + sum(latency for _, _, latency in ports))
        return departure_ns

    def _way(self, to: int) -> list[tuple[tuple, float, float]]:
        """Return the ports with their bytes per ns and ns."""
        node, link = self.node, self.node.link
        if to // node.gpus != self.rank // node.gpus:
            rate = node.network.bandwidth_gb_per_s * node.network.efficiency
            return [(("network",), rate / self.crowd, node.network.latency_ns)]
        if link.kind == "full":  # a link of its own: nobody shares it
            return [(("link", to), self._rate, link.latency_ns)]
        ports = [(("port",), self._rate / self.crowd, link.latency_ns)]
        if link.kind == "host" and host_of(node, to) != host_of(node, self.rank):
            distance = to - self.rank if self.crowd == 1.0 else node.gpus // 2
            ports.append((("hosts",), crossing_bytes_per_ns(node, distance), 0.0))
        return ports

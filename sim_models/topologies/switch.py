"""Every GPU has a link to one switch, which passes on what it gets."""

from .topology import Link, Topology


def switch(gpus: int) -> Topology:
    """Build a star of `gpus` GPUs around a switch, which is the last node."""
    return Topology("switch", gpus + 1, tuple(link for gpu in range(gpus)
                                              for link in (Link(gpu, gpus), Link(gpus, gpu))), switches=1)

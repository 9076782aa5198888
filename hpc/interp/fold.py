"""Runs in which all ranks do the same at the same time: one of them stands for all.

Programs address ranks relatively, so ranks differ by their tokens, the counts of their
rows and the experts they own, and by nothing else. If these are equal up to rotation,
a rank's egress is its destinations' ingress: rank 0 alone, receiving what it sends as
if it came from the other ranks, goes through the same times as each rank of the full
run, to the last bit. That needs one thing more: what crosses ranks must take some time,
so that simultaneous events of different ranks cannot affect each other.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hpc.machine.record import Machine
from hpc.schedule.layer import Layer
from hpc.schedule.layout import as_counts


def foldable(layer: Layer, counts: npt.ArrayLike, machine: Machine) -> bool:
    """Whether rank 0 provably stands for all ranks."""
    if layer.ep == 1 or layer.experts % layer.ep or len(set(layer.tokens)) > 1:
        return False
    if not _takes_time(machine):
        return False
    table = as_counts(layer, counts)
    blocks = table.reshape(layer.ep, layer.ep, layer.experts // layer.ep)
    return all(
        np.array_equal(np.roll(blocks[rank], -rank, axis=0), blocks[0])
        for rank in range(1, layer.ep)
    )


def _takes_time(machine: Machine) -> bool:
    """Rows and signals between ranks arrive later than they were sent."""
    hop_us = min(machine.package_hop_us, machine.hop_us, machine.across_hop_us)
    return hop_us > 0 and machine.event_visible_us > 0

"""What a shift costs on the links: the mean over all ranks.

Ranks fill packages and nodes in order. Whether rank r and rank r + k share a package
depends on r, so each shift k is priced at its mean over all ranks. Every rank then sees
the same machine, which keeps balanced runs symmetric. Bytes within a package take a
link of their own beside the one that leaves it: the slower of the two decides.
"""

from __future__ import annotations

from dataclasses import dataclass

from hpc.machine.record import Machine


@dataclass(frozen=True, slots=True)
class Shift:
    """Rank r to rank r + k: the shares of ranks for which it stays in the package, and
    leaves the package but not the node; the mean latency and fixed cost of a put; and
    how many bytes at `link_gbps` one byte is worth."""

    in_package: float
    in_node: float
    hop_us: float
    issue_us: float
    link_share: float


def shift_of(machine: Machine, ep: int, k: int) -> Shift:
    """Costs of the shift k (mod ep), for `ep` ranks; an own row needs no link."""
    k %= ep
    if k == 0:
        return Shift(0.0, 0.0, 0.0, machine.put_issue_us, 0.0)
    package = _together(ep, machine.dies_per_package, k) / ep
    node = _together(ep, machine.dies_per_node, k) / ep - package
    across = 1.0 - package - node
    hop_us = package * machine.package_hop_us
    hop_us += node * machine.hop_us + across * machine.across_hop_us
    issue_us = (package + node) * machine.put_issue_us
    issue_us += across * machine.across_issue_us
    outside = node + across * machine.link_gbps / machine.across_gbps
    inside = package * machine.link_gbps / machine.package_gbps
    return Shift(package, node, hop_us, issue_us, max(inside, outside))


def collective_share(machine: Machine, shift: Shift) -> float:
    """As `link_share` for a host-driven all-to-all: all ranks exchange with one shift
    at a time, so each step is as slow as its slowest pair."""
    slowest = machine.link_gbps / machine.collective_gbps
    across = 1.0 - shift.in_package - shift.in_node
    if across > 1e-9:
        return slowest * max(1.0, machine.link_gbps / machine.across_gbps)
    if shift.in_node > 1e-9:
        return slowest
    return slowest * machine.link_gbps / machine.package_gbps


def farthest_us(machine: Machine, ep: int) -> float:
    """Latency between the two of `ep` ranks that are farthest apart."""
    if ep <= machine.dies_per_package:
        return machine.package_hop_us
    return machine.hop_us if ep <= machine.dies_per_node else machine.across_hop_us


def _together(ep: int, block: int, k: int) -> int:
    """Ranks r of 0 .. ep-1 in the same block of `block` ranks as (r + k) mod ep.

    >>> [_together(8, 2, k) for k in range(8)]
    [8, 4, 0, 0, 0, 0, 0, 4]
    """
    count = 0
    if k < block:
        full, rest = divmod(ep - k, block)
        count += full * (block - k) + min(rest, block - k)
    back = ep - k
    if 0 < back < block:
        full, rest = divmod(ep, block)
        count += full * (block - back) + max(0, rest - back)
    return count

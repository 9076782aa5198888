"""A bandwidth that many transfers share equally: processor sharing in virtual time.

With `n` transfers under way each gets min(cap, rate / n) (times its weight). All of
them advance by the same amount of *virtual bytes*, so a transfer is finished when the
virtual clock has moved by its size: a heap of finish marks is exact, and costs
O(log n) per transfer however often the rates change.
"""

from __future__ import annotations

from heapq import heappop, heappush

INFINITY = float("inf")


class SharedPool:
    """One shared resource: `rate` and `cap` in bytes per microsecond.

    Weights should be multiples of 2^-10, so that their sums are exact and the result
    does not depend on the order of joining. `token` is the time of the one pending
    wake-up that is not stale.
    """

    __slots__ = ("cap", "flows", "last", "rate", "served", "token", "v", "weight")

    def __init__(self, rate: float, cap: float) -> None:
        self.rate = rate
        self.cap = cap
        self.flows: list[tuple[float, int, float]] = []
        self.v = 0.0
        self.weight = 0.0
        self.last = 0.0
        self.token = INFINITY
        self.served = 0.0

    def join(self, now: float, size: float, weight: float, flow: int) -> bool:
        """Start transferring `size` bytes; True if `token` moved and must be queued."""
        total = self.weight
        v = self.v
        if total:
            speed = self.rate / total
            if speed > self.cap:
                speed = self.cap
            v += (now - self.last) * speed
        self.v = v
        self.last = now
        self.served += size
        total += weight
        self.weight = total
        flows = self.flows
        heappush(flows, (v + size / weight, flow, weight))
        speed = self.rate / total
        if speed > self.cap:
            speed = self.cap
        due = now + (flows[0][0] - v) / speed
        # More flows only slow the earlier ones: an old token is at worst too early.
        if due >= self.token:
            return False
        self.token = due
        return True

    def finished(self, now: float) -> list[int]:
        """Flows that are complete at `now`; sets the next token."""
        flows = self.flows
        total = self.weight
        speed = min(self.cap, self.rate / total)
        v = self.v + (now - self.last) * speed
        done: list[int] = []
        # A remainder too small to move the clock counts as finished.
        while flows and (flows[0][0] <= v or now + (flows[0][0] - v) / speed <= now):
            mark, flow, weight = heappop(flows)
            v = mark if mark > v else v
            done.append(flow)
            total -= weight
        self.last = now
        if flows:
            self.v = v
            self.weight = total
            self.token = now + (flows[0][0] - v) / min(self.cap, self.rate / total)
        else:
            # Restarting at zero keeps the marks small, hence precise.
            self.v = self.weight = 0.0
            self.token = INFINITY
        return done


class FifoPool:
    """The same resource served in order of arrival, one transfer at a time."""

    __slots__ = ("free", "rate", "served")

    def __init__(self, rate: float) -> None:
        self.rate = rate
        self.free = 0.0
        self.served = 0.0

    def book(self, now: float, size: float) -> float:
        """Time at which a transfer asked for at `now` is complete."""
        start = self.free if self.free > now else now
        self.free = start + size / self.rate
        self.served += size
        return self.free

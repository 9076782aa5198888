"""The event loop with HBM and links served first come, first served."""

from __future__ import annotations

from heapq import heappush

from hpc.interp.events import SharedEngine
from hpc.interp.pool import FifoPool


class FifoEngine(SharedEngine):
    """The same engine with HBM and links served first come, first served."""

    def _init_pools(self) -> None:
        super()._init_pools()
        self.queues = [FifoPool(pool.rate) for pool in self.pools]
        self.hbm_core = self.machine.hbm_core_gbps * 1e3
        self.put_core_rate = self.machine.put_core_gbps * 1e3

    def _move(self, core: int, i: int, now: float, size: float) -> None:
        alone = now + max(self.work_us[i], size / self.hbm_core)
        moved = self.queues[self.rank_of[core]].book(now, size)
        self._finish(core, moved if moved > alone else alone)

    def _send(self, put: int, rank: int, tile: int, now: float) -> None:
        size = self.put_bytes[put]
        remote = self.shift[tile] != 0
        sent = self.queues[rank].book(now, size if remote else 2 * size)
        if remote:
            link = self.queues[self.ranks + rank]
            sent = max(sent, link.book(now, self._link_bytes(tile, size)))
        if not self.collective[tile]:
            sent = max(sent, now + size / self.put_core_rate)
        self.sent_at[put] = sent
        self.ready[put] = sent
        if self.signalled[tile]:
            self._sent(put, sent)
        if remote:
            self.ready[put] += self.machine.hop_us
            heappush(self.events, (self.ready[put], self.key_recv + put))
        else:
            self._deliver(put, sent)

    def _arrival(self, put: int, now: float) -> None:
        """The last bytes arrive; the link may have carried the first ones before."""
        tile = put % self.per_put
        dest = (put // self.per_put + self.shift[tile]) % self.ranks
        size = self.put_bytes[put]
        done = now
        for pool, moved in (
            (2 * self.ranks + dest, self._link_bytes(tile, size)),
            (dest, size),
        ):
            queue = self.queues[pool]
            done = max(done, queue.book(now - moved / queue.rate, moved))
        self._deliver(put, done)

    def _link_bytes(self, tile: int, size: float) -> float:
        return size * self.stretch if self.collective[tile] else size

    def _served(self) -> list[float]:
        return [queue.served for queue in self.queues]

"""Binary heaps in flat arrays, for compiled code: what `heapq` is to the plain loop.

A heap is a float64 array: its size, then its items one after the other. Items are
tuples of one width, ordered by their first two numbers, which no two items share; so
they leave in the same order as they would from any other heap.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Heap = npt.NDArray[np.float64]


INFINITY = float("inf")


def empty(count: int, most: int, width: int) -> npt.NDArray[np.float64]:
    """`count` heaps for up to `most` items each; memory is taken as they grow."""
    heaps = np.empty((count, 1 + most * width))
    heaps[:, 0] = 0
    return heaps


def is_empty(heap: Heap) -> bool:
    return heap[0] == 0.0


def head(heap: Heap) -> float:
    """First number of the smallest item, or infinity."""
    return heap[1] if heap[0] > 0.0 else INFINITY


def push_event(heap: Heap, item: tuple[float, int]) -> None:
    """Adds (time, key)."""
    at = rise(heap, item[0], item[1], 2)
    heap[at] = item[0]
    heap[at + 1] = item[1]


def pop_event(heap: Heap) -> tuple[float, int]:
    """Removes the earliest event."""
    first = (heap[1], int(heap[2]))
    sink(heap, 2)
    return first


def push_flow(heap: Heap, item: tuple[float, int, float]) -> None:
    """Adds (mark, flow, weight)."""
    at = rise(heap, item[0], item[1], 3)
    heap[at] = item[0]
    heap[at + 1] = item[1]
    heap[at + 2] = item[2]


def pop_flow(heap: Heap) -> tuple[float, int, float]:
    """Removes the transfer with the smallest mark."""
    first = (heap[1], int(heap[2]), heap[3])
    sink(heap, 3)
    return first


def rise(heap: Heap, first: float, second: float, width: int) -> int:
    """Makes room for an item that begins with these two; where it goes."""
    n = int(heap[0])
    heap[0] = n + 1
    return climb(heap, n, first, second, width)


def climb(heap: Heap, n: int, first: float, second: float, width: int) -> int:
    """Moves larger items from above place n, which is free, down; where one that
    begins with these two goes then."""
    while n > 0:
        above = (n - 1) // 2
        here, there = 1 + n * width, 1 + above * width
        if heap[there] < first:
            break
        if heap[there] == first and heap[there + 1] < second:
            break
        for part in range(width):
            heap[here + part] = heap[there + part]
        n = above
    return 1 + n * width


def sink(heap: Heap, width: int) -> None:
    """Fills the place of the smallest item, which leaves."""
    last = int(heap[0]) - 1
    heap[0] = last
    moved = 1 + last * width
    n = 0
    # Down to a leaf: the item that fills the hole came from one, and goes near one.
    while 2 * n + 2 < last:
        child = 2 * n + 1
        there = 1 + child * width
        # Reckoned, not branched on: which child is smaller cannot be predicted.
        smaller = precedes(heap, there + width, there)
        child += smaller
        there += smaller * width
        for part in range(width):
            heap[1 + n * width + part] = heap[there + part]
        n = child
    if 2 * n + 1 < last:
        there = 1 + (2 * n + 1) * width
        for part in range(width):
            heap[1 + n * width + part] = heap[there + part]
        n = 2 * n + 1
    at = climb(heap, n, heap[moved], heap[moved + 1], width)
    for part in range(width):
        heap[at + part] = heap[moved + part]


def precedes(heap: Heap, one: int, two: int) -> int:
    """1 if the item at `one` comes before the one at `two`, else 0."""
    first, second = heap[one], heap[two]
    equal = int(first == second)
    return int(first < second) | equal & int(heap[one + 1] < heap[two + 1])

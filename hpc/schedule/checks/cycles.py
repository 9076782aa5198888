"""Cycles of a directed graph: one shortest cycle for each knot of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

N = TypeVar("N")


def cycles(graph: Mapping[N, Sequence[N]]) -> list[list[N]]:
    """A cycle [n0, n1, ...] (n0 follows the last) in each strongly connected part.

    Linear in nodes and edges but for the search of the short cycle inside each part.

    >>> cycles({1: [2], 2: [1], 3: [3], 4: [1]})
    [[1, 2], [3]]
    """
    found: list[list[N]] = []
    for part in _components(graph):
        inside = set(part)
        start = next(node for node in graph if node in inside)
        if len(part) > 1 or start in graph[start]:
            found.append(_shortest_cycle(graph, inside, start))
    order = {node: i for i, node in enumerate(graph)}
    return sorted(found, key=lambda cycle: order[cycle[0]])


def _shortest_cycle(
    graph: Mapping[N, Sequence[N]], inside: set[N], start: N
) -> list[N]:
    before: dict[N, N] = {}
    queue = deque([start])
    while queue:
        node = queue.popleft()
        for follower in graph[node]:
            if follower == start:
                return _path_to(node, start, before)
            if follower in inside and follower not in before:
                before[follower] = node
                queue.append(follower)
    raise AssertionError("a strongly connected part has no cycle")


def _path_to(node: N, start: N, before: Mapping[N, N]) -> list[N]:
    path = [node]
    while path[-1] != start:
        path.append(before[path[-1]])
    return path[::-1]


def _components(graph: Mapping[N, Sequence[N]]) -> list[list[N]]:
    """Strongly connected parts (Tarjan, without recursion)."""
    number: dict[N, int] = {}
    low: dict[N, int] = {}
    stack: list[N] = []
    on_stack: set[N] = set()
    parts: list[list[N]] = []
    for root in graph:
        if root in number:
            continue
        work: list[tuple[N, Iterator[N]]] = [(root, iter(graph[root]))]
        number[root] = low[root] = len(number)
        stack.append(root)
        on_stack.add(root)
        while work:
            node, followers = work[-1]
            follower = next((f for f in followers if f in graph), None)
            if follower is None:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == number[node]:
                    parts.append(_pop_part(node, stack, on_stack))
            elif follower not in number:
                number[follower] = low[follower] = len(number)
                stack.append(follower)
                on_stack.add(follower)
                work.append((follower, iter(graph[follower])))
            elif follower in on_stack:
                low[node] = min(low[node], number[follower])
    return parts


def _pop_part(node: N, stack: list[N], on_stack: set[N]) -> list[N]:
    part: list[N] = []
    while not part or part[-1] != node:
        part.append(stack.pop())
        on_stack.discard(part[-1])
    return part

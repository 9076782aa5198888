"""Rules on the operands of the operators that only a backward program has."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from hpc.schedule.checks.operands import (
    ROWS,
    Operand,
    Problem,
    in_space,
    one,
    router_like,
    same_cols,
    same_expert,
    same_part,
    whole,
)

Operands = list[Operand]


def gmm_nt(reads: Operands, writes: Operands) -> Iterator[Problem]:
    """Rows times a transposed matrix: the gradient of the rows of a GMM."""
    (rows, weight), (out,) = reads, writes
    yield from in_space("first operand", rows, ("routed",))
    yield from in_space("second operand", weight, ("weight",))
    yield from in_space("result", out, ("routed",))
    yield from same_part(rows, out)
    yield from same_expert(weight, rows)
    if rows.buffer.cols != weight.buffer.cols:
        yield "wrong-cols", f"{rows.size} times {weight.size}, transposed"
    if weight.buffer.rows != out.buffer.cols:
        yield (
            "wrong-cols",
            f'"{weight.buffer.name}" of {weight.buffer.rows} rows, transposed, '
            f"into {out.size}",
        )


def gmm_tn(reads: Operands, writes: Operands) -> Iterator[Problem]:
    """The gradient of a matrix: it adds over all rows of one expert."""
    (left, right), (out,) = reads, writes
    yield from in_space("first operand", left, ("routed",))
    yield from in_space("second operand", right, ("routed",))
    yield from in_space("result", out, ("weight",))
    for rows in reads:
        if rows.region.part is not None:
            yield (
                "wrong-part",
                f'reads group {rows.region.part} of "{rows.buffer.name}", but a '
                "gradient of weights adds over all rows of its expert",
            )
        if rows.region.expert != out.region.expert or out.region.expert is None:
            yield (
                "wrong-part",
                f"rows of expert {one(rows.region.expert)} for the gradient of "
                f"expert {one(out.region.expert)}",
            )
    if left.buffer.cols != out.buffer.rows:
        yield (
            "wrong-cols",
            f'{left.size} into "{out.buffer.name}" of {out.buffer.rows} rows',
        )
    yield from same_cols(right, out)


def activation_gradient(
    factor: int,
) -> Callable[[Operands, Operands], Iterator[Problem]]:
    """`factor` is the width of an activation's operand over that of its result."""

    def rule(reads: Operands, writes: Operands) -> Iterator[Problem]:
        (rows, above), (out,) = reads, writes
        yield from in_space("first operand", rows, ROWS)
        yield from in_space("second operand", above, (rows.buffer.space,))
        yield from in_space("result", out, (rows.buffer.space,))
        yield from same_part(rows, out)
        yield from same_part(above, out)
        yield from same_cols(rows, out)
        if rows.buffer.cols != factor * above.buffer.cols:
            wanted = "twice the" if factor == 2 else "the same"
            yield (
                "wrong-cols",
                f"{rows.size} with the gradient {above.size}: not {wanted} width",
            )

    return rule


def reduce_dot(reads: Operands, writes: Operands) -> Iterator[Problem]:
    """The gradient of a dispatch that scaled its rows, and that of the scale."""
    (rows, router, tokens), (out, result) = reads, writes
    yield from in_space("first operand", rows, ("slot",))
    yield from router_like("router weights", router)
    yield from in_space("third operand", tokens, ("token",))
    yield from in_space("first result", out, ("token",))
    yield from router_like("gradients of router weights", result)
    yield from same_cols(rows, out)
    yield from same_cols(tokens, out)
    for each in (rows, router, result):
        yield from whole(each)


def copy(reads: Operands, writes: Operands) -> Iterator[Problem]:
    """The same rows in another buffer."""
    (rows,), (out,) = reads, writes
    yield from in_space("operand", rows, ROWS)
    yield from in_space("result", out, (rows.buffer.space,))
    yield from same_part(rows, out)
    yield from same_cols(rows, out)

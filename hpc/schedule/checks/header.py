"""What the header says of the layer is what buffers and operators do.

Nothing executes these fields, but reports, tolerances and gradients are taken from
them. Only what a compiled schedule always has is asked for: a buffer or operator that
the header says nothing of is no contradiction.
"""

from __future__ import annotations

from collections.abc import Iterator

from hpc.schedule.checks.index import Index, Place, Violation
from hpc.schedule.checks.operands import Problem
from hpc.schedule.checks.router import Router, gives_gradients
from hpc.schedule.model import FRACTAL, Buffer, Put, Task

CHECK = "structure"
RULES = {
    "wrong-size": "x, w_up and w_down have the layer's hidden and intermediate size.",
    "wrong-padding": "Padded sizes are those of the layer, rounded up to 16.",
    "wrong-mode": "Gradients, saved buffers and outputs are those of the mode.",
}

_NAMED = (
    ("hidden", "x", "token", "cols", "hidden"),
    ("hidden", "w_up", "weight", "rows", "hidden"),
    ("hidden", "w_down", "weight", "cols", "hidden"),
    ("intermediate", "w_up", "weight", "cols", "up_width"),
    ("intermediate", "w_down", "weight", "rows", "intermediate"),
)
"""A field of the layer, the name and space of a buffer that the language gives that
size, its side, and the attribute of the layer that this is."""

_SHOWN = 3
"""As many buffers are named; the others are counted."""


def check_header(index: Index, router: Router) -> list[Violation]:
    """All fields of the header that buffers or operators contradict; references must
    be sound."""
    problems = [*_sizes(index), *_padding(index), *_dtype(index)]
    found = [index.violation(CHECK, code, message) for code, message in problems]
    return found + [
        index.violation(CHECK, "wrong-mode", message, place)
        for message, place in _mode(index, router)
    ]


def _sizes(index: Index) -> Iterator[Problem]:
    layer = index.s.layer
    wrong: dict[str, list[str]] = {}
    for field, name, space, side, attribute in _NAMED:
        buffer = index.buffers.get(name)
        if buffer is None or buffer.space != space:
            continue
        got, size = getattr(buffer, side), getattr(layer, attribute)
        if got != size:
            what = "columns" if side == "cols" else side
            wrong.setdefault(field, []).append(f'"{name}" has {got} {what}, not {size}')
    for field, texts in wrong.items():
        value = getattr(layer, field)
        yield "wrong-size", f"{field} is {value}, but {', '.join(texts)}"


def _padding(index: Index) -> Iterator[Problem]:
    """Hand-made schedules may record no padded sizes, or not all."""
    layer = index.s.layer
    sizes = {
        "hidden": layer.hidden,
        "intermediate": layer.intermediate,
        "up_width": layer.up_width,
    }
    for name, padded in index.s.padded:
        if name not in sizes:
            known = ", ".join(sizes)
            yield "wrong-padding", f'padded has "{name}", which is not one of {known}'
        elif padded != (wanted := -(-sizes[name] // FRACTAL) * FRACTAL):
            yield (
                "wrong-padding",
                f"padded {name} is {padded}, expected {wanted} for {name} "
                f"{sizes[name]}",
            )


def _dtype(index: Index) -> Iterator[Problem]:
    """Numbers of the router are fp32 whatever the layer's dtype."""
    own = index.s.layer.dtype
    others: dict[str, list[str]] = {}
    for buffer in index.s.buffers:
        router = (buffer.space, buffer.cols, buffer.dtype) == ("slot", 1, "fp32")
        if buffer.dtype != own and not router:
            others.setdefault(buffer.dtype, []).append(f'"{buffer.name}"')
    for dtype, names in others.items():
        shown = ", ".join(names[:_SHOWN])
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        verb = "is" if len(names) == 1 else "are"
        yield "wrong-dtype", f"the layer is {own}, but {shown}{more} {verb} {dtype}"


_Found = tuple[str, Place | None]
"""A message, and the instruction that it is about, if it is about one."""


def _mode(index: Index, router: Router) -> Iterator[_Found]:
    """Where nothing but sums and copies is left, every mode computes the same."""
    mode = index.s.mode
    saved = [buffer.name for buffer in index.s.buffers if buffer.role == "saved"]
    if saved and mode != "backward":
        what = f'"{saved[0]}" has role saved, which only mode backward has'
        yield f"{what}; the mode is {mode}", None
    if mode == "forward":
        yield from _with_gradients(index, router)
    elif router.gradients:
        yield from _outputs(index, router)
    else:
        yield from _without_gradients(index)


def _with_gradients(index: Index, router: Router) -> Iterator[_Found]:
    """In mode forward: the first instruction that only gradients need."""
    if not router.gradients:
        return
    place, instr = next(each for each in index.places() if gives_gradients(each[1]))
    what = instr.op if isinstance(instr, Task) else "a put with a dot product"
    yield f"the mode is forward, but {what} computes gradients", place


def _without_gradients(index: Index) -> Iterator[_Found]:
    """In another mode: the first instruction whose gradient would take more than sums
    and copies."""
    for place, instr in index.places():
        if isinstance(instr, Put | Task) and _name(instr) not in ("add", "copy"):
            what = f"nothing computes the gradient of this {_name(instr)}"
            yield f"the mode is {index.s.mode}, but {what}", place
            return


def _name(instr: Put | Task) -> str:
    return instr.kind if isinstance(instr, Put) else instr.op


def _outputs(index: Index, router: Router) -> Iterator[_Found]:
    """A train program gives what the layer computes too, a backward program not."""
    values = [
        buffer.name
        for buffer in index.s.buffers
        if buffer.role == "output" and not _is_gradient(buffer, router)
    ]
    if index.s.mode == "train" and not values:
        yield "the mode is train, but every output is a gradient, as in backward", None
    if index.s.mode == "backward" and values:
        what = f'output "{values[0]}" is no gradient, as in train'
        yield f"the mode is backward, but {what}", None


def _is_gradient(buffer: Buffer, router: Router) -> bool:
    """Of an output where there are gradients: matrices and slots are nothing else."""
    return buffer.space in ("weight", "slot") or buffer.name in router.gradients

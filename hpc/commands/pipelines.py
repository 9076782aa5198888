"""Checking what the user wrote after `-p`, with the pass and its options in errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from hpc.commands.errors import UsageError, suggestion

if TYPE_CHECKING:
    from xdsl.passes import ModulePass
    from xdsl.utils.arg_spec import ArgSpec

Passes = dict[str, Callable[[], "type[ModulePass]"]]


def available_passes() -> Passes:
    """Every pass by name: ours, the loaded ones and xDSL's."""
    from xdsl.transforms import get_all_passes

    from hpc.universe import HPC_UNIVERSE

    return {**get_all_passes(), **HPC_UNIVERSE.all_passes}


def check_pipeline(text: str, passes: Passes) -> None:
    """Raise UsageError unless `text` is a pipeline of known passes and options."""
    from xdsl.utils.arg_spec import parse_pipeline
    from xdsl.utils.exceptions import ArgSpecParseError

    try:
        specs = list(parse_pipeline(text))
    except ArgSpecParseError as error:
        raise UsageError(_syntax_error(str(error))) from error
    if not specs and text:
        raise UsageError("the pipeline is empty")
    for spec in specs:
        _check_pass(spec, passes)


def _syntax_error(text: str) -> str:
    """xDSL's message (a heading, a place, the text, a caret, the reason), turned round
    and without its made-up file name."""
    *shown, reason = text.strip("\n").split("\n")[2:]
    lines = [f"cannot read the pipeline: {reason.strip()}"]
    return "\n".join(lines + [f"    {line}" for line in shown])


def _check_pass(spec: ArgSpec, passes: Passes) -> None:
    if spec.name not in passes:
        hint = suggestion(spec.name, list(passes))
        raise UsageError(f"unknown pass '{spec.name}'{hint or '; see hpc list passes'}")
    defined = passes[spec.name]()
    try:
        defined.from_pass_spec(spec)
    except (ValueError, TypeError) as error:
        raise UsageError(
            f"pass '{spec.name}': {_reason(spec, defined, str(error))}"
        ) from error


def _reason(spec: ArgSpec, defined: type[ModulePass], text: str) -> str:
    """What is wrong with the options; names those that exist."""
    known = [name for name, _, _ in options_of(defined)]
    for name in spec.parameters:
        if name.replace("_", "-") not in known:
            hint = suggestion(name.replace("_", "-"), known)
            listed = f"; its options: {', '.join(known)}" if known else "; it has none"
            return f"no option '{name}'{hint or listed}"
    return " ".join(text.split())


def options_of(defined: type[ModulePass]) -> list[tuple[str, str, str | None]]:
    """(name as written in -p, type, default or None if required) of each option."""
    from xdsl.passes import get_pass_option_infos

    return [
        (info.name.replace("_", "-"), info.expected_type, info.default_value)
        for info in get_pass_option_infos(defined)
        if info.name != "name"
    ]

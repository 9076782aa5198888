"""The argument parser: every subcommand's options, in one place and cheap to import."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING

from hpc.schedule.policy import POLICIES

if TYPE_CHECKING:
    from hpc.interp.inject import Fault

VALUES = ("full", "shrunk", "off")
ENGINES = ("auto", "plain", "fast")
DISPATCHES = ("static", "dynamic")
MACHINE_ACTIONS = ("show", "validate")
LISTS = ("passes", "machines", "samples", "policies", "ops")

DESCRIPTION = "Compile Mixture-of-Experts layers to checked static schedules."
EXAMPLES = """\
examples:
  hpc compile samples/tiny.moe                       write tiny.ssc.json
  hpc compile samples/tiny.moe --print-ir-after-all  and show the IR after each pass
  hpc run samples/tiny.moe --policy all              check, simulate, verify values
  hpc list passes                                    what -p accepts

`hpc COMMAND --help` describes a command. Results go to stdout, all else to stderr.
Exit status: 0 good, 1 wrong input or a failed check, 2 wrong use of the command.
"""


class Parser(argparse.ArgumentParser):
    """Keeps the layout of examples; says which help to read when misused."""

    def __init__(self, **options: object) -> None:
        options.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        options.setdefault("allow_abbrev", False)
        super().__init__(**options)  # pyright: ignore[reportArgumentType]

    def error(self, message: str) -> None:  # type: ignore[override]
        """Write one line to stderr and exit with status 2."""
        self.exit(2, f"{self.prog}: error: {message}\n(see {self.prog} --help)\n")


def make_parser() -> Parser:
    """The parser of `hpc`; the chosen subcommand is `args.command`."""
    parser = Parser(prog="hpc", description=DESCRIPTION, epilog=EXAMPLES)
    parser.add_argument("--version", action="store_true", help="print the version")
    _add_global(parser, "early_")
    commands = parser.add_subparsers(
        dest="command", metavar="COMMAND", parser_class=Parser
    )
    for name, (text, add) in COMMANDS.items():
        sub = commands.add_parser(name, help=text, description=text, epilog=None)
        add(sub)
        _add_global(sub, "")
    return parser


def _add_global(parser: argparse.ArgumentParser, prefix: str) -> None:
    """Options allowed before and after the subcommand; `prefix` keeps them apart."""
    parser.add_argument(
        "--load",
        metavar="FILE.py",
        action="append",
        default=[],
        dest=f"{prefix}load",
        help="make the passes in a Python file available by name (repeatable)",
    )
    parser.add_argument(
        "--debug",
        action="store_true",
        dest=f"{prefix}debug",
        help="show a traceback if hpc itself fails",
    )


def _add_pipeline(parser: argparse.ArgumentParser, *, several: bool) -> None:
    group = parser.add_mutually_exclusive_group()
    if several:
        group.add_argument(
            "--policy",
            action="append",
            choices=[*POLICIES, "all"],
            help="policy to compile with, repeatable (default: the spec's, else list)",
        )
    else:
        group.add_argument(
            "--policy",
            choices=tuple(POLICIES),
            help="how to order the tasks (default: the spec's, else list)",
        )
    group.add_argument(
        "-p",
        "--pipeline",
        metavar="PIPELINE",
        help="passes to run instead of the default, e.g. 'moe-tile,tile-place'",
    )


def _add_ir(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--print-ir-after-all",
        action="store_true",
        help="print the IR to stderr, first as read, then after each pass",
    )
    parser.add_argument(
        "--dump-ir",
        metavar="DIR",
        help="write the same to DIR: 00_input.mlir, 01_moe-tile.mlir, ..., "
        "and the schedule last",
    )
    parser.add_argument(
        "--print-debuginfo",
        action="store_true",
        help="with source locations in the printed or dumped IR",
    )


def _add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON, not a table")


def _add_values(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--values",
        choices=VALUES,
        default="shrunk",
        help="run the schedule on data: all of it, on a copy with narrower rows, "
        "or not at all (default: shrunk)",
    )
    parser.add_argument(
        "--seed",
        type=_seed,
        default=0,
        metavar="N",
        help="queues interleave by seed; N and N + 1 are run (default: 0)",
    )


def _add_dispatch(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--dispatch",
        choices=DISPATCHES,
        default="static",
        help="tasks are fetched from the compiled queues, or each is handed out at run "
        "time at the machine's price (default: static)",
    )


def _seed(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise argparse.ArgumentTypeError(f"'{text}' is not in 0 .. 999999999")
    return int(text)


def _fault(text: str) -> Fault:
    from hpc.interp.inject import GRAMMAR, FaultError, parse_fault

    try:
        return parse_fault(text)
    except FaultError as error:
        raise argparse.ArgumentTypeError(f"{error}\n{GRAMMAR}") from error


def _compile_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE.moe", help="the layer to compile")
    parser.add_argument(
        "-o",
        "--output",
        metavar="OUT",
        help="schedule file to write, - for stdout (default: NAME.ssc.json here)",
    )
    _add_pipeline(parser, several=False)
    _add_ir(parser)
    _add_json(parser)


def _run_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="a .moe or .ssc.json file")
    _add_pipeline(parser, several=True)
    _add_values(parser)
    parser.add_argument(
        "--trace",
        metavar="OUT.json",
        help="write the simulated timeline of the reported policy for Perfetto",
    )
    parser.add_argument(
        "--no-fold",
        action="store_true",
        help="simulate every rank, also where one stands for all",
    )
    parser.add_argument(
        "--engine",
        choices=ENGINES,
        default="auto",
        help="event loop: plain, or compiled by numba (same numbers; default: auto)",
    )
    _add_dispatch(parser)
    parser.add_argument(
        "--sensitivity",
        action="store_true",
        help="report how latencies and ranking move with jitter and assumed constants",
    )
    parser.add_argument(
        "--inject",
        type=_fault,
        action="append",
        metavar="FAULT",
        help="simulate with a fault and report what it costs, or explain the hang: "
        "drop-signal:EVENT[@RANK], delay:QUEUE:INDEX:US[@RANK], "
        "slow-core:UNIT:CORE:FACTOR[@RANK] or dead-rank:RANK (repeatable)",
    )
    _add_json(parser)


def _check_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file", nargs="?", metavar="FILE", help="a .ssc.json or .moe file"
    )
    parser.add_argument(
        "--explain",
        metavar="CODE",
        help="show the rule of a violation code, a rejected example and its fix",
    )
    parser.add_argument(
        "--relaxed",
        action="store_true",
        help="assume that a signal may overtake the data of earlier puts",
    )
    parser.add_argument(
        "--against",
        metavar="OTHER",
        help="also require that every sum is made in the order and precision of OTHER, "
        "a .ssc.json or .moe file",
    )
    _add_pipeline(parser, several=False)
    _add_json(parser)


def _compare_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE.moe", help="the layer to compile")
    _add_dispatch(parser)
    _add_json(parser)


def _list_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", choices=LISTS, metavar="WHAT", help=", ".join(LISTS))
    _add_json(parser)


def _machine_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "action",
        choices=MACHINE_ACTIONS,
        metavar="ACTION",
        help="show: every value with its source; "
        "validate: run published measurements, compare",
    )
    parser.add_argument("name", metavar="NAME", help="a record's name or .toml file")
    parser.add_argument(
        "--points",
        metavar="NAME|FILE",
        help="validate against the points of this machine, or of your .toml file "
        "(default: those of the record's name)",
    )
    _add_json(parser)


def _opt_arguments(parser: argparse.ArgumentParser) -> None:
    """`hpc opt` has xdsl-opt's options; `hpc.commands.opt` parses them itself."""


COMMANDS: dict[str, tuple[str, Callable[[argparse.ArgumentParser], None]]] = {
    "compile": ("compile a .moe file to a schedule file", _compile_arguments),
    "run": ("compile, check, simulate and verify the values", _run_arguments),
    "check": ("check a schedule file; every violation is shown", _check_arguments),
    "compare": ("compare the scheduling policies on a layer", _compare_arguments),
    "opt": ("xdsl-opt with these dialects, passes and .moe input", _opt_arguments),
    "list": ("list passes, machines, samples, policies or ops", _list_arguments),
    "machine": ("show a machine record, or validate it", _machine_arguments),
}

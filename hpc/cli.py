"""The `hpc` command: picks the subcommand, turns every error into a line and a status.

Each subcommand lives in its own module of `hpc.commands` and is imported when it is
asked for, so that a command pays only for what it uses. The parser, too, is imported
within `main`: an interrupt that comes early is met there.
"""

from __future__ import annotations

import os
import sys
from errno import ENOSPC
from importlib import import_module
from typing import TYPE_CHECKING

from hpc.commands.errors import (
    BROKEN_PIPE,
    FAILED,
    INTERNAL,
    INTERRUPTED,
    MISUSE,
    OK,
    InputError,
    UsageError,
    file_error,
)

if TYPE_CHECKING:
    import argparse

MODULES = {
    "compile": "hpc.commands.compile",
    "run": "hpc.commands.run",
    "check": "hpc.commands.check",
    "compare": "hpc.commands.compare",
    "list": "hpc.commands.listing",
    "machine": "hpc.commands.machine",
}


def main(argv: list[str] | None = None) -> int:
    """Run the command and return its exit status; never a traceback.

    Statuses: 0 good, 1 wrong input or a failed check, 2 misuse, 70 a fault of hpc
    itself, 130 interrupted, 141 the reader of stdout went away.
    """
    arguments = sys.argv[1:] if argv is None else argv
    try:
        status = _run(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        _silence_stdout()
        return BROKEN_PIPE
    except OSError as error:  # of the flush
        return _stdout_failed(error)
    except KeyboardInterrupt:
        sys.stderr.write("hpc: interrupted\n")
        return INTERRUPTED
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else MISUSE
    return status


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    """The parsed command line; exits with status 2 and a message if it is misused.

    What follows `opt` is left to xDSL's own parser, as `args.rest`.
    """
    from hpc.commands.arguments import make_parser

    parser = make_parser()
    end = _end_of_command(arguments)
    args = parser.parse_args(arguments[:end])
    args.rest = arguments[end:]
    args.load = args.early_load + getattr(args, "load", [])
    args.debug = args.early_debug or getattr(args, "debug", False)
    if args.command is None and not args.version:
        parser.print_help(sys.stderr)
        parser.exit(MISUSE)
    return args


def _end_of_command(arguments: list[str]) -> int:
    """Where our own arguments end: after `opt` if that is the subcommand."""
    index = 0
    while index < len(arguments) and arguments[index].startswith("--"):
        index += 2 if arguments[index] == "--load" else 1
    return index + 1 if arguments[index : index + 1] == ["opt"] else len(arguments)


def _run(arguments: list[str]) -> int:
    args = parse_arguments(arguments)
    try:
        return _dispatch(args)
    except (BrokenPipeError, KeyboardInterrupt, SystemExit):
        raise
    except InputError as error:
        sys.stderr.write(f"{error}\n")
        return FAILED
    except UsageError as error:
        sys.stderr.write(f"hpc {args.command}: error: {error}\n")
        return MISUSE
    except OSError as error:
        if error.errno == ENOSPC and error.filename is None:  # files have names
            return _stdout_failed(error)
        return _unexpected(error, debug=args.debug or "--debug" in args.rest)
    except Exception as error:
        return _unexpected(error, debug=args.debug or "--debug" in args.rest)


def _dispatch(args: argparse.Namespace) -> int:
    if args.version:
        return _show_version()
    if args.command == "opt":
        from hpc.commands.opt import run_opt

        return run_opt(args.rest, load=args.load)
    if args.load:
        from hpc.commands.loading import load_passes

        load_passes(args.load)
    return import_module(MODULES[args.command]).run(args)


def _show_version() -> int:
    from importlib.metadata import version

    sys.stdout.write(f"hpc {version('hpc-moe')} (xDSL {version('xdsl')})\n")
    return OK


def _unexpected(error: Exception, *, debug: bool) -> int:
    """An error nobody foresaw: the user's own pass at fault, or ours."""
    from hpc.commands.loading import blame_loaded_file

    if debug:
        import traceback

        traceback.print_exception(error)
    if (blamed := blame_loaded_file(error)) is not None:
        sys.stderr.write(f"{blamed}\n")
        return FAILED
    text = " ".join(str(error).split())[:200]
    sys.stderr.write(
        f"hpc: internal error: {type(error).__name__}: {text}\n"
        "This is a fault of hpc. Please report it with your input"
        f"{'' if debug else ' and the output of --debug'}.\n"
    )
    return INTERNAL


def _stdout_failed(error: OSError) -> int:
    _silence_stdout()
    sys.stderr.write(f"{file_error('stdout', error)}\n")
    return FAILED


def _silence_stdout() -> None:
    """Nobody gets stdout any more: keep Python's own flush at exit quiet too."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    sys.exit(main())

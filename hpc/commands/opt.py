"""`hpc opt`: xdsl-opt with our dialects and passes, errors to read, statuses to trust.

xdsl-opt itself works too (through the `xdsl.universe` entry point), but shows a Python
traceback for a wrong input.
"""

from __future__ import annotations

import argparse
import io
import struct
import sys
from importlib.metadata import version
from typing import IO

from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass
from xdsl.utils.arg_spec import parse_spec
from xdsl.utils.exceptions import (
    ArgSpecParseError,
    DiagnosticException,
    ParseError,
    UnregisteredConstructException,
)
from xdsl.xdsl_opt_main import xDSLOptMain

from hpc.commands.errors import FAILED, OK, InputError, UsageError, file_error
from hpc.commands.loading import load_passes
from hpc.commands.outputs import note, write_text
from hpc.commands.pipelines import check_pipeline
from hpc.commands.quotes import find_bad_string
from hpc.driver import error_text
from hpc.spec.diagnostics import SpecError
from hpc.universe import HPC_UNIVERSE

DESCRIPTION = "xdsl-opt with the moe, tile and npu dialects, their passes, .moe input."
EXAMPLES = """\
examples:
  hpc opt samples/tiny.moe                          the IR of the layer
  hpc opt samples/tiny.moe -p moe-tile              after one pass
  hpc opt samples/tiny.moe -p moe-tile --print-op-generic
  hpc --load my_pass.py opt in.mlir -p my-pass      with a pass of your own

`hpc list passes` lists the passes and their options.
"""

LISTED = "those of `hpc list passes`, and xDSL's"
"""Stands in the help for the names of some 150 passes."""


UNREADABLE = (
    UnregisteredConstructException,
    ValueError,
    OverflowError,
    RecursionError,
    struct.error,
)
"""What xDSL's parser lets through for some wrong texts, such as huge integers."""


def _no_pass() -> type[ModulePass]:
    return ModulePass


class _Kept(io.StringIO):
    """Output held back until the run has succeeded; xDSL closes it too early."""

    def close(self) -> None:
        """Keep the text."""


class OptMain(xDSLOptMain):
    """xdsl-opt plus `--load`, `--debug` and output that is never half-written."""

    version_format = f"hpc opt {version('hpc-moe')} (xDSL {{xdsl_version}})"

    def __init__(self, arguments: list[str], load: list[str]) -> None:
        self._load = load
        self._held: _Kept | None = None
        super().__init__(DESCRIPTION, arguments)

    def register_all_arguments(self, arg_parser: argparse.ArgumentParser) -> None:
        """xDSL's options, with help that fits on a screen, then ours."""
        every, self.available_passes = self.available_passes, {LISTED: _no_pass}
        super().register_all_arguments(arg_parser)
        self.available_passes = every
        arg_parser.prog = "hpc opt"
        arg_parser.epilog = EXAMPLES
        arg_parser.formatter_class = argparse.RawDescriptionHelpFormatter
        add = arg_parser.add_argument
        add("--load", action="append", default=[], metavar="FILE.py")
        add("--debug", action="store_true", help="show a traceback if hpc itself fails")

    def setup_pipeline(self) -> None:
        """Load the user's passes first, then look the pipeline up."""
        load_passes([*self._load, *self.args.load])
        for name, factory in HPC_UNIVERSE.all_passes.items():
            self.register_pass(name, factory)
        check_pipeline(self.args.passes, self.available_passes)
        super().setup_pipeline()

    def prepare_output(self) -> IO[str]:
        """stdout, or text that `finish` writes to the output file."""
        if self.args.output_file in (None, "-"):
            return sys.stdout
        self._held = _Kept()
        return self._held

    def get_input_stream(self) -> tuple[IO[bytes], str]:
        """The input and its kind: what -f says, else by extension; `-` is stdin."""
        if self.args.input_file == "-":
            self.args.input_file = None
        try:
            stream, kind = super().get_input_stream()
        except OSError as error:
            raise file_error(self.args.input_file, error) from error
        if self.args.frontend:
            kind = parse_spec(self.args.frontend).name
        if kind not in self.available_frontends:
            stream.close()
            kinds = ", ".join(sorted(self.available_frontends))
            raise InputError(
                f"{self.get_input_name()}: error: cannot tell what this file is; "
                f"name its kind with -f ({kinds})"
            )
        return stream, kind

    def parse_chunk(
        self, chunk: IO[bytes], file_extension: str, start_offset: int = 0
    ) -> ModuleOp | None:
        """The module; whatever is wrong with the text is the input's fault."""
        name = self.get_input_name()
        try:
            data = chunk.read()
            if file_extension == "mlir":
                _check_strings(name, data.decode(), start_offset)
            return super().parse_chunk(io.BytesIO(data), file_extension, start_offset)
        except UnicodeDecodeError as error:
            where = f"{error.reason} at byte {error.start}"
            raise InputError(f"{name}: error: not text in UTF-8 ({where})") from error
        except OSError as error:
            raise file_error(name, error) from error
        except UNREADABLE as error:
            raise InputError(f"{name}: error: {error}") from error

    def finish(self) -> None:
        """Write the output file, now that everything has worked."""
        if self._held is not None:
            write_text(self.args.output_file, self._held.getvalue())


def _check_strings(name: str, text: str, offset: int) -> None:
    if (place := find_bad_string(text)) is None:
        return
    line, column = place
    shown = text.split("\n")[line - 1]
    raise InputError(
        f"{name}:{line + offset}:{column}: error: string is not closed, or has an "
        f"unknown escape\n{shown}\n{' ' * (column - 1)}^"
    )


def run_opt(arguments: list[str], *, load: list[str]) -> int:
    """Run `hpc opt` on its own arguments; returns the exit status."""
    main = _make(arguments, load)
    try:
        main.run()
    except ParseError as error:
        note(render_parse_error(error))
        return FAILED
    except DiagnosticException as error:
        note("\n".join([error_text(error), *getattr(error, "__notes__", ())]))
        return FAILED
    main.finish()
    return OK


def _make(arguments: list[str], load: list[str]) -> OptMain:
    """Everything that fails here is misuse: the options or the target."""
    try:
        return OptMain(arguments, load)
    except ArgSpecParseError as error:
        raise UsageError(str(error).strip()) from error


def render_parse_error(error: ParseError) -> str:
    """`file:line:col: error: message`, then the source line and a caret.

    The frontend of `.moe` files has its own diagnostics, several in one error.
    """
    if isinstance(error.__cause__, SpecError):
        return error.__cause__.render()
    where = error.span.get_location()
    context = error.span.print_with_context().rstrip("\n").split("\n", 1)[1]
    return f"{where}: error: {error.msg}\n{context}"

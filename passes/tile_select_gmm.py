"""`tile-select-gmm`: the base tile of every GMM."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from dialects import tile
from dialects.base import ints_attr
from hpc.machine.tiles import check_gmm_tile, choose_gmm_tile
from hpc.schedule.model import Base
from passes.gmm_shape import GMM_OPS, buffers_of, gmm_shape
from passes.program import ProgramInfo, fail, programs


@dataclass(frozen=True)
class TileSelectGmmPass(ModulePass):
    """
    Give every GMM task its base tile [m, n, k]: the one that fits L0A, L0B, L0C and L1
    of the machine and has the least modelled time for the rows the task expects. With
    `base`, or a pin, that tile is used for all.

    Before:
    ```mlir
    %0 = tile.task gmm (@recv[0, 0], @w_up[0]) -> (@h[0, 0])
    ```
    After:
    ```mlir
    %0 = tile.task gmm (@recv[0, 0], @w_up[0]) -> (@h[0, 0]) base [128, 256, 64]
    ```
    Needs `moe-tile`. Refuses a tile that does not fit, naming the limit.
    """

    name = "tile-select-gmm"

    base: tuple[int, ...] | None = None

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for program in programs(op, tile.ProgramOp, self.name):
            _Selector(program, self.base).run()


class _Selector:
    def __init__(self, program: tile.ProgramOp, base: tuple[int, ...] | None):
        self.program = program
        self.info = ProgramInfo(program)
        self.fixed = base if base is not None else self.info.pins.base_tile
        self.buffers = buffers_of(program)
        self.chosen: dict[tuple[int, int, int], Base] = {}

    def run(self) -> None:
        for op in self.program.body.block.ops:
            if isinstance(op, tile.TaskOp) and op.op.data in GMM_OPS:
                base = self.choose(op)
                op.properties["base"] = ints_attr((base.m, base.n, base.k))

    def choose(self, op: tile.TaskOp) -> Base:
        dtype, machine = self.info.layer.dtype, self.info.machine
        if self.fixed is not None:
            if len(self.fixed) != 3:
                raise fail(op, f"a base tile is m, n, k, got {list(self.fixed)}")
            base = Base(*self.fixed)
            reason = check_gmm_tile(machine, base, dtype)
            if reason is not None:
                raise fail(op, f"base tile {base.m}x{base.n}x{base.k}: {reason}")
            return base
        shape = gmm_shape(self.info, op, self.buffers)
        if shape not in self.chosen:
            cores = self.info.pins.aic or machine.aic_cores
            try:
                self.chosen[shape] = choose_gmm_tile(machine, *shape, dtype, cores)
            except ValueError as error:
                raise fail(op, str(error)) from error
        return self.chosen[shape]

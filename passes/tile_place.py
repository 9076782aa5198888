"""`tile-place`: unit and team of every task."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from dialects import tile
from dialects.base import ints_attr
from dialects.tile_attrs import ALL
from hpc.machine.cost import OP_COSTS
from passes.program import ProgramInfo, fail, programs


@dataclass(frozen=True)
class TilePlacePass(ModulePass):
    """
    Place every task on a team: matrix work on the AICs, vector work and communication
    on AIVs, sharing one team or each with its own as the policy says, and give vector
    tasks their rows per tile. Numbers of cores come from the options, the pins, or the
    machine: half of the AIVs saturate the link (`machine-facts`: about 24 of 48).

    Before:
    ```mlir
    %0 = tile.task swiglu (@h[0, 0]) -> (@a[0, 0])
    ```
    After, on the policy `paper`:
    ```mlir
    %0 = tile.task swiglu (@h[0, 0]) -> (@a[0, 0]) base [128] on aiv[0:48]
    ```
    Needs `moe-tile`. Refuses teams that the machine has no cores for, and operators
    without an entry in the cost table.
    """

    name = "tile-place"

    aic: int | None = None
    comm_aiv: int | None = None
    vector_aiv: int | None = None

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for program in programs(op, tile.ProgramOp, self.name):
            _Placer(program, self).run()


class _Placer:
    def __init__(self, program: tile.ProgramOp, options: TilePlacePass):
        self.program = program
        self.info = ProgramInfo(program)
        self.ops = [op for op in program.body.block.ops if isinstance(op, tile.TileOp)]
        self.aic, self.comm, self.vector = self.teams(options)

    def teams(
        self, options: TilePlacePass
    ) -> tuple[tile.TeamAttr, tile.TeamAttr, tile.TeamAttr]:
        """The AIC team, the communication team and the vector team."""
        machine, pins = self.info.machine, self.info.pins
        aic = options.aic or pins.aic or machine.aic_cores
        self.limit("aic", aic, machine.aic_cores)
        cores = machine.aiv_cores
        comm = options.comm_aiv or pins.comm_aiv
        vector = options.vector_aiv or pins.vector_aiv
        exchanges = any(isinstance(op, tile.ExchangeLike) for op in self.ops)
        wanted = comm is not None and vector is not None
        if not exchanges or (self.info.policy.shared_aiv and not wanted):
            size = vector or comm or cores
            self.limit("vector_aiv", size, cores)
            both = tile.TeamAttr.of("aiv", 0, size)
            return tile.TeamAttr.of("aic", 0, aic), both, both
        comm = comm or (cores - vector if vector else cores // 2)
        vector = vector or cores - comm
        self.limit("comm_aiv + vector_aiv", comm + vector, cores)
        if comm < 1 or vector < 1:
            raise fail(
                self.program,
                f"comm_aiv {comm} and vector_aiv {vector} must both be at least 1"
                f" of {cores}",
            )
        return (
            tile.TeamAttr.of("aic", 0, aic),
            tile.TeamAttr.of("aiv", 0, comm),
            tile.TeamAttr.of("aiv", comm, vector),
        )

    def limit(self, what: str, size: int, most: int) -> None:
        if not 1 <= size <= most:
            name = self.info.machine.name
            raise fail(
                self.program, f"{what} = {size}, and {name} has 1 to {most} cores"
            )

    def run(self) -> None:
        for op in self.ops:
            if not isinstance(op, tile.TaskOp):
                op.properties["team"] = self.comm
                continue
            name = op.op.data
            if name not in OP_COSTS:
                known = ", ".join(sorted(OP_COSTS))
                raise fail(op, f"no cost entry for operator '{name}'; known: {known}")
            if OP_COSTS[name].unit == "aic":
                op.properties["team"] = self.aic
                continue
            op.properties["team"] = self.vector
            if op.base is None:
                op.properties["base"] = ints_attr((self.vector_rows(op),))

    def vector_rows(self, op: tile.TaskOp) -> int:
        """Rows of a tile: the policy's number, or an equal share for every core."""
        if self.info.policy.vector_rows is not None:
            return self.info.policy.vector_rows
        region = op.writes.data[0]
        chunks = self.info.program.row_chunks.value.data
        rows = self.info.layer.max_tokens / chunks
        if region.expert.data != ALL:
            rows = self.info.part_rows(region.part.data)
        return max(1, -(-round(rows) // self.vector.size.data))

"""`tile-place`: unit and team of every task."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from dialects import tile
from dialects.base import ints_attr
from dialects.tile_attrs import ALL
from hpc.schedule.policy import POLICIES
from passes.program import ProgramInfo, cost_of, fail, programs


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
        cores = machine.aiv_cores
        aic = self.cores("aic", options.aic, pins.aic, machine.aic_cores)
        aic = aic or machine.aic_cores
        comm = self.cores("comm_aiv", options.comm_aiv, pins.comm_aiv, cores)
        vector = self.cores("vector_aiv", options.vector_aiv, pins.vector_aiv, cores)
        exchanges = any(isinstance(op, tile.ExchangeLike) for op in self.ops)
        wanted = comm is not None and vector is not None
        if not exchanges or (self.info.policy.shared_aiv and not wanted):
            size = vector or comm or cores
            both = tile.TeamAttr.of("aiv", 0, size)
            return tile.TeamAttr.of("aic", 0, aic), both, both
        comm = comm or (cores - vector if vector else cores // 2)
        vector = vector or cores - comm
        if comm < 1 or vector < 1 or comm + vector > cores:
            raise fail(self.program, self.misfit(comm, vector))
        return (
            tile.TeamAttr.of("aic", 0, aic),
            tile.TeamAttr.of("aiv", 0, comm),
            tile.TeamAttr.of("aiv", comm, vector),
        )

    def misfit(self, comm: int, vector: int) -> str:
        """Why the AIV cores do not make a communication and a vector team."""
        machine, policy = self.info.machine.name, self.info.policy.name
        cores = self.info.machine.aiv_cores
        if (both := comm + vector) > cores:
            return (
                f"comm_aiv + vector_aiv = {comm} + {vector} = {both}"
                f" exceeds the {cores} AIV cores of {machine}"
            )
        if cores == 1:
            shared = " or ".join(p.name for p in POLICIES.values() if p.shared_aiv)
            return (
                f"policy {policy} needs an AIV core for communication and another one"
                f" for vector work, {machine} has 1; use policy {shared}"
            )
        given, left = ("comm_aiv", "vector work")
        if comm < 1:
            given, left = ("vector_aiv", "communication")
        return f"{given} = {cores} leaves no AIV core of {machine} for {left}"

    def cores(
        self, what: str, option: int | None, pin: int | None, most: int
    ) -> int | None:
        """The option, else the pin, within the cores of the machine."""
        size = option if option is not None else pin
        if size is not None and not 1 <= size <= most:
            name = self.info.machine.name
            raise fail(
                self.program,
                f"{what} must be 1 to the {most} cores of {name}, got {size}",
            )
        return size

    def run(self) -> None:
        for op in self.ops:
            if not isinstance(op, tile.TaskOp):
                op.properties["team"] = self.comm
                continue
            if cost_of(op, op.op.data).unit == "aic":
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
            rows = self.info.part_rows(op, region.part.data)
        return max(1, -(-round(rows) // self.vector.size.data))

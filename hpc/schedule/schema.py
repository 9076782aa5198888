"""The schema of `.ssc.json`, as data. Reader, writer and README follow this table.

Adding a field with a default keeps old files readable and needs no new version;
any other change raises `model.VERSION`.
"""

from __future__ import annotations

from hpc.schedule.layer import ACTIVATIONS, DTYPE_BYTES, Activation, Layer, Routing
from hpc.schedule.model import (
    PUT_KINDS,
    ROLES,
    SCOPES,
    SPACES,
    TRANSPORTS,
    UNITS,
    Barrier,
    Base,
    Buffer,
    Event,
    Put,
    Queue,
    Schedule,
    Set,
    Task,
    Team,
    Wait,
)
from hpc.schedule.shapes import (
    Bool,
    EventRef,
    Field,
    Int,
    Items,
    LocRef,
    Num,
    Pairs,
    Record,
    RegionShape,
    Text,
    Union,
)

ROUTING_KINDS = ("balanced", "uniform", "zipf", "hot", "one_rank", "counts", "ids")
DTYPE = Text(tuple(DTYPE_BYTES))
NAME = Text(empty=False)
SIZE = Int(1)
COLS = Int(1, 1 << 24)
CHUNKS = Int(1, 1 << 16)
LOC = Field("loc", LocRef(), "index into `locs`: where the operator was written")

ACTIVATION = Record(
    "activation",
    Activation,
    (
        Field("name", Text(ACTIVATIONS), "name"),
        Field("alpha", Num(), "only for swiglu_oai", 1.702),
        Field("limit", Num(), "only for swiglu_oai", 7.0),
    ),
)

LAYER = Record(
    "layer",
    Layer,
    (
        Field("name", Text(), "name of the layer"),
        Field(
            "tokens",
            Items(Int(), least=1),
            "tokens of each rank, `ep` entries, not all 0",
        ),
        Field("hidden", COLS, "columns of a token"),
        Field("intermediate", COLS, "columns after the activation"),
        Field("experts", Int(1, 1 << 16), "experts over all ranks, at least `ep`"),
        Field("top_k", SIZE, "experts that a token chooses, at most `experts`"),
        Field("activation", ACTIVATION, "activation"),
        Field("dtype", DTYPE, "dtype of rows and weights"),
        Field("ep", Int(1, 4096), "number of ranks"),
        Field(
            "weights_at",
            Text(("output", "input")),
            "where the router weight multiplies",
            "output",
        ),
        Field("repeats", Bool(), "a token may choose one expert twice", False),
    ),
)

ROUTING = Record(
    "routing",
    Routing,
    (
        Field("kind", Text(ROUTING_KINDS), "kind of routing"),
        Field("params", Pairs(Num()), "numbers of the kind, by name", ()),
        Field("counts", Items(Items(Int())), "rows [rank][expert]; kind counts", ()),
        Field(
            "ids",
            Items(Items(Items(Int(-1)))),
            "experts [rank][token][slot], -1 is not sent; kind ids",
            (),
        ),
        Field("origin", Text(), "file that the table came from", ""),
    ),
)

BUFFER = Record(
    "buffer",
    Buffer,
    (
        Field("name", NAME, "name, unique"),
        Field("space", Text(SPACES), "how its rows are cut into parts"),
        Field("cols", COLS, "elements of a row"),
        Field("dtype", DTYPE, "dtype of an element"),
        Field("role", Text(ROLES), "what it is for"),
        Field("capacity_rows", Int(), "most rows; for weight: local experts"),
        Field("rows", Int(), "rows of each matrix; only for weight", 0),
        Field("symmetric", Bool(), "remote ranks may write it", False),
        Field("formula", Text(), "how capacity_rows came about", ""),
    ),
)

EVENT = Record(
    "event",
    Event,
    (
        Field("id", Int(), "counter in the machine, unique"),
        Field("name", NAME, "name that instructions use, unique"),
        Field("need", Int(), "signals that one launch brings"),
    ),
)

TEAM = Record(
    "team",
    Team,
    (
        Field("unit", Text(UNITS), "kind of core"),
        Field("first", Int(), "first core"),
        Field("size", SIZE, "number of cores"),
    ),
)

BASE = Record(
    "base tile",
    Base,
    (
        Field("m", SIZE, "rows"),
        Field("n", Int(), "columns; only for gmm", 0),
        Field("k", Int(), "depth; only for gmm", 0),
    ),
)

WAIT = Record(
    "wait instruction",
    Wait,
    (
        Field("event", EventRef(), "counter to wait for"),
        Field("need", Int(), "goes on when the counter is at least this"),
        LOC,
    ),
    "wait",
)

SET = Record(
    "set instruction",
    Set,
    (Field("event", EventRef(), "counter that every core adds one to"), LOC),
    "set",
)

PUT = Record(
    "put instruction",
    Put,
    (
        Field("kind", Text(PUT_KINDS), "direction"),
        Field("expert", Int(), "local expert"),
        Field("group", Int(), "index into `groups`"),
        Field("chunks", CHUNKS, "tiles for each destination"),
        Field("source", RegionShape(), "rows read here"),
        Field("dest", RegionShape(), "rows written on the other rank"),
        Field("event", EventRef(optional=True), "counter signalled there"),
        Field("transport", Text(TRANSPORTS), "how it travels", "put"),
        Field("scale", Bool(), "multiply rows by router weights", False),
        Field("dot", Items(RegionShape()), "rows to dot with, result; or none", ()),
        LOC,
    ),
    "put",
)

TASK = Record(
    "task instruction",
    Task,
    (
        Field("op", NAME, "operator"),
        Field("reads", Items(RegionShape()), "operands, in order"),
        Field("writes", Items(RegionShape()), "results"),
        Field("base", BASE, "base tile"),
        Field("params", Pairs(Num()), "numbers of the operator, by name", ()),
        LOC,
    ),
    "task",
)

BARRIER = Record(
    "barrier instruction",
    Barrier,
    (
        Field("scope", Text(SCOPES), "whose cores meet"),
        Field("launch", Bool(), "also costs a kernel launch", False),
        LOC,
    ),
    "barrier",
)

INSTRUCTION = Union("instruction", (WAIT, SET, PUT, TASK, BARRIER))

QUEUE = Record(
    "queue",
    Queue,
    (
        Field("team", TEAM, "cores that run it"),
        Field("code", Items(INSTRUCTION), "instructions, in order"),
    ),
)

SCHEDULE = Record(
    "schedule",
    Schedule,
    (
        Field("layer", LAYER, "the layer"),
        Field("machine", NAME, "name of the machine record"),
        Field("policy", Text(), "scheduling policy"),
        Field("mode", Text(("forward", "backward", "train")), "what is computed"),
        Field("pipeline", Text(), "passes that made it"),
        Field("routing", ROUTING, "routing that it was compiled for"),
        Field("groups", Items(Items(Int()), least=1), "relative sources by group"),
        Field("row_chunks", CHUNKS, "parts of a token buffer"),
        Field("padded", Pairs(SIZE), "padded size of each dimension", ()),
        Field("notes", Items(Text()), "remarks of the compiler", ()),
        Field("locs", Items(Text(), least=1), "source locations, file:line:col"),
        Field("buffers", Items(BUFFER), "buffers of every rank"),
        Field("events", Items(EVENT), "counters of every rank"),
        Field("queues", Items(QUEUE), "programs of the teams"),
    ),
)
"""Body of a file. `format`, `version` and the two hashes stand before it."""

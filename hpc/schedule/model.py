"""The schedule file as plain objects: one program that every rank runs.

Meaning (the one place that states it; engine, values and checker follow it):

Ranks. R = `layer.ep` ranks run the same queues. Rank-relative names: with "to = k" rank
me addresses rank (me + k) mod R.

Groups. `groups[g]` is a tuple of relative sources k; together they are a partition of
0..R-1 and k = 0 (own rows) is in group 0. At a receiver, k stands for the source
(me - k) mod R.

Spaces, i.e. how a buffer's rows are cut into parts `[expert, part]`:
- "token": the rank's tokens; expert is None, part c of `row_chunks` holds rows
  [T*c//row_chunks, T*(c+1)//row_chunks).
- "routed": rows received by the rank, ordered by local expert, then group, then the
  ks of the group in their order, then the source's own order (token, slot) ascending.
  Part (e, g) = rows of local expert e from the sources of group g. Offsets are
  exclusive prefix sums of the routing counts.
- "slot": row token * top_k + slot of the rank's own tokens. Part (e, g) = the slots
  that were sent to local expert e of the ranks (me + k), k in groups[g].
- "weight": expert e holds a matrix of `rows` x `cols`; part is None.
A region leaves expert and/or part None to mean all of them.

Queues. Each core of a team runs the whole list in order and takes its share of every
instruction that has tiles: tile t belongs to core (offset + t) mod team size, where
`offset` is the number of tiles of all earlier instructions of that queue on that rank.
- `Wait`: blocks until the rank's counter `event` >= `need`.
- `Set`: every core of the team adds one to the rank's own counter, after all that this
  core did before is visible.
- `Put` "dispatch" of (e, g): for k in groups[g] in order, for chunk c < chunks: one
  tile. It copies rows [n*c//chunks, n*(c+1)//chunks) of the n rows which this rank
  sends to local expert e of rank (me + k) (gathered from the token buffer `source`)
  into that rank's routed buffer `dest`; then adds one to `event` of that rank.
- `Put` "combine" of (e, g): for k in groups[g], chunk c: one tile: rows of part (e, g)
  that came from rank (me - k), from the routed buffer `source` to the slot buffer
  `dest` of rank (me - k); then adds one to `event` of that rank.
  Zero rows still signal. `event` None: no signal (serial; a barrier follows).
  `scale` (dispatch only): rows are multiplied by their router weight, and rounded.
  `dot` = (rows, result) (dispatch only, both local and in space "slot"): each row, as
  read from `source`, is multiplied with the row of its (token, slot) in `rows`, and the
  f32 sum is stored in `result` (one column).
- `Task`: computes `writes` from `reads`. "gmm" and "gmm_nt": read (rows, weight); the
  result is rows @ weight, for "gmm_nt" rows @ weight transposed; tiles are
  ceil(rows / base.m) x ceil(N / base.n), t = j_n * ceil(rows / base.m) + i_m, with N
  the columns of the result. "gmm_tn": reads (p, q), all rows of one expert, and writes
  its matrix p transposed @ q, in space "weight": tiles are ceil(M / base.m) x
  ceil(N / base.n) in the same order, M and N the sizes of the matrix; each tile adds
  over all rows, source k ascending, in f32 with one rounding; no rows give zeros.
  "reduce_dot": reads (slots, router, tokens), writes (tokens, slots of one column): the
  weighted sum as "reduce", and for every (token, slot) the f32 dot product of its row
  with the token's row. Others: ceil(rows / base.m) tiles of base.m rows. Operator
  numbers are in `params`.
- `Barrier`: every core of the scope ("rank" or "world") arrives before any leaves;
  `launch` adds the cost of a kernel launch.

Events are monotone counters, starting at 0. `Event.need` is the number of signals that
one launch brings, and every wait's threshold is that number (all-join).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hpc.schedule.layer import Layer, Routing

FORMAT = "hpc-ssc"
VERSION = 1

FRACTAL = 16
"""The cube computes 16 x 16 fractals: sides of its tiles are multiples of that, and
a dimension counts padded to one."""

SPACES = ("token", "routed", "slot", "weight")
ROLES = ("input", "weight", "saved", "workspace", "output")
"""Role "saved": what a backward program finds from the forward pass; it only reads
it."""
UNITS = ("aic", "aiv")
PUT_KINDS = ("dispatch", "combine")
TRANSPORTS = ("put", "collective")
SCOPES = ("rank", "world")


@dataclass(frozen=True, slots=True)
class Region:
    """Part of a buffer; None means all experts / all parts."""

    buffer: str
    expert: int | None = None
    part: int | None = None


@dataclass(frozen=True, slots=True)
class Buffer:
    """A named buffer on every rank.

    `capacity_rows` is the most rows it can hold (for space "weight": the number of
    local experts, each `rows` x `cols`); `formula` says how that number came about.
    `symmetric` buffers are at the same address on all ranks and may be written by
    remote puts.
    """

    name: str
    space: str
    cols: int
    dtype: str
    role: str
    capacity_rows: int
    rows: int = 0
    symmetric: bool = False
    formula: str = ""


@dataclass(frozen=True, slots=True)
class Event:
    """A counter: `id` in the machine, readable `name` such as "arrived[0,1]"."""

    id: int
    name: str
    need: int


@dataclass(frozen=True, slots=True)
class Team:
    """Cores `first` .. `first + size - 1` of kind `unit` on every rank."""

    unit: str
    first: int
    size: int


@dataclass(frozen=True, slots=True)
class Base:
    """Base tile: m x n x k of a GMM; only m (rows) counts for a vector task."""

    m: int
    n: int = 0
    k: int = 0


@dataclass(frozen=True, slots=True)
class Wait:
    event: int
    need: int
    loc: int = 0


@dataclass(frozen=True, slots=True)
class Set:
    event: int
    loc: int = 0


@dataclass(frozen=True, slots=True)
class Put:
    """One-sided write with signal; see the module text. `transport`: "put" or
    "collective" (the host-driven all-to-all of the serial policy)."""

    kind: str
    expert: int
    group: int
    chunks: int
    source: Region
    dest: Region
    event: int | None
    transport: str = "put"
    scale: bool = False
    dot: tuple[Region, ...] = ()
    loc: int = 0


@dataclass(frozen=True, slots=True)
class Task:
    """Compute. `op`: gmm, an activation, add, reduce, ... as the cost table lists."""

    op: str
    reads: tuple[Region, ...]
    writes: tuple[Region, ...]
    base: Base
    params: tuple[tuple[str, float], ...] = ()
    loc: int = 0


@dataclass(frozen=True, slots=True)
class Barrier:
    scope: str
    launch: bool = False
    loc: int = 0


Instr = Wait | Set | Put | Task | Barrier


@dataclass(frozen=True, slots=True)
class Queue:
    team: Team
    code: tuple[Instr, ...]


@dataclass(frozen=True)
class Schedule:
    """A whole program. `locs[i]` is the `file:line:col` that instruction.loc = i names.

    `padded` records the padded size of each dimension, e.g. (("hidden", 2880),).
    """

    layer: Layer
    machine: str
    policy: str
    mode: str
    pipeline: str
    routing: Routing
    groups: tuple[tuple[int, ...], ...]
    row_chunks: int
    buffers: tuple[Buffer, ...]
    events: tuple[Event, ...]
    queues: tuple[Queue, ...]
    locs: tuple[str, ...]
    padded: tuple[tuple[str, int], ...] = ()
    notes: tuple[str, ...] = field(default=())

    def buffer(self, name: str) -> Buffer:
        """The buffer called `name`; KeyError if there is none."""
        for buffer in self.buffers:
            if buffer.name == name:
                return buffer
        raise KeyError(name)

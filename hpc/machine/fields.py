"""The keys of a machine record: one table that the loader, checks and docs share."""

from __future__ import annotations

from dataclasses import dataclass

CONFIDENCES = ("spec", "measured", "derived", "assumed")
"""How a value is known: vendor document, published measurement, arithmetic, guess."""


@dataclass(frozen=True, slots=True)
class Field:
    """One key of a record.

    `kind` is int, float, cycles (three numbers: head, slope, tail) or dtypes (a list
    of strings). Numbers must lie within `low` .. `high` of `unit`.
    """

    group: str
    key: str
    kind: str
    unit: str
    low: float
    high: float
    doc: str


FIELDS: tuple[Field, ...] = (
    Field("cores", "aic_cores", "int", "cores", 1, 1024, "matrix cores of a die"),
    Field("cores", "aiv_cores", "int", "cores", 1, 4096, "vector cores of a die"),
    Field("cores", "clock_ghz", "float", "GHz", 0.05, 10, "clock of both kinds"),
    Field("cores", "dtypes", "dtypes", "dtype", 0, 0, "element types it computes in"),
    Field("cube", "cube_m0", "int", "elements", 1, 256, "rows of one cube step"),
    Field("cube", "cube_n0", "int", "elements", 1, 256, "columns of one cube step"),
    Field("cube", "cube_k0_16bit", "int", "elements", 1, 256, "depth, 16-bit"),
    Field("cube", "cube_k0_32bit", "int", "elements", 1, 256, "depth, 32-bit"),
    Field("cube", "mmad_head_cycles", "float", "cycles", 0, 1e4, "start of one Mmad"),
    Field(
        "cube",
        "mmad_sync_cycles",
        "float",
        "cycles",
        0,
        1e4,
        "hand-over of L0 buffers between loads and the cube, per Mmad",
    ),
    Field(
        "vector",
        "vector_bytes",
        "int",
        "B/cycle",
        16,
        1 << 16,
        "bytes of one repeat of a vector instruction",
    ),
    Field("vector", "vadd", "cycles", "cycles", 0, 1e4, "add, subtract"),
    Field("vector", "vmul", "cycles", "cycles", 0, 1e4, "multiply"),
    Field("vector", "vmuls", "cycles", "cycles", 0, 1e4, "multiply or add a scalar"),
    Field("vector", "vdiv", "cycles", "cycles", 0, 1e4, "divide"),
    Field("vector", "vexp", "cycles", "cycles", 0, 1e4, "exponential"),
    Field("vector", "vconv", "cycles", "cycles", 0, 1e4, "convert 16-bit and 32-bit"),
    Field("vector", "vmax", "cycles", "cycles", 0, 1e4, "maximum, minimum"),
    Field("memory", "l0a_bytes", "int", "B", 1 << 10, 1 << 30, "left operand buffer"),
    Field("memory", "l0b_bytes", "int", "B", 1 << 10, 1 << 30, "right operand buffer"),
    Field("memory", "l0c_bytes", "int", "B", 1 << 10, 1 << 30, "accumulator buffer"),
    Field("memory", "l1_bytes", "int", "B", 1 << 10, 1 << 30, "AIC staging buffer"),
    Field("memory", "ub_bytes", "int", "B", 1 << 10, 1 << 30, "AIV unified buffer"),
    Field("memory", "l2_bytes", "int", "B", 1 << 10, 1 << 40, "cache of the die"),
    Field("memory", "hbm_bytes", "int", "B", 1 << 20, 1 << 50, "memory of the die"),
    Field("memory", "l1_l0a_bytes_per_cycle", "float", "B/cycle", 1, 1e5, "L1 to L0A"),
    Field("memory", "l1_l0b_bytes_per_cycle", "float", "B/cycle", 1, 1e5, "L1 to L0B"),
    Field(
        "memory",
        "fixpipe_bytes_per_cycle",
        "float",
        "B/cycle",
        1,
        1e5,
        "L0C to global memory, bytes as stored",
    ),
    Field(
        "memory",
        "gm_core_gbps",
        "float",
        "GB/s",
        0.1,
        1e5,
        "global memory to one core, long transfers from L2",
    ),
    Field(
        "memory",
        "gm_half_bytes",
        "float",
        "B",
        0,
        1e9,
        "transfer size at which a core reaches half of gm_core_gbps",
    ),
    Field("memory", "l2_gbps", "float", "GB/s", 1, 1e6, "L2 of the die, reads"),
    Field(
        "memory",
        "hbm_core_gbps",
        "float",
        "GB/s",
        0.1,
        1e5,
        "most that one core gets from HBM",
    ),
    Field("memory", "hbm_gbps", "float", "GB/s", 1, 1e6, "HBM of the die, reads"),
    Field("memory", "hbm_write_gbps", "float", "GB/s", 1, 1e6, "HBM, write-backs"),
    Field(
        "memory",
        "gm_issue_cycles",
        "float",
        "cycles",
        0,
        1e5,
        "issue of one transfer between global memory and a core, when many overlap",
    ),
    Field(
        "memory",
        "scalar_load_us",
        "float",
        "us",
        0,
        1e3,
        "one number from global memory into the scalar unit of a core",
    ),
    Field(
        "memory",
        "unaligned_factor",
        "float",
        "ratio",
        1,
        10,
        "time of a core's transfers when rows are not multiples of 512 B",
    ),
    Field("sync", "max_events", "int", "events", 1, 1 << 30, "counters per rank"),
    Field("sync", "max_tasks", "int", "tasks", 1, 1 << 40, "tasks per rank"),
    Field("sync", "task_fetch_us", "float", "us", 0, 1e4, "fetch of a static task"),
    Field(
        "sync",
        "dynamic_fetch_us",
        "float",
        "us",
        0,
        1e4,
        "fetch, dispatched at run time",
    ),
    Field("sync", "event_set_us", "float", "us", 0, 1e4, "store and clean a counter"),
    Field(
        "sync",
        "event_visible_us",
        "float",
        "us",
        0,
        1e4,
        "from the store to the moment a poller can see it",
    ),
    Field(
        "sync",
        "event_poll_us",
        "float",
        "us",
        0,
        1e4,
        "from the opening of an event until a core that waits for it goes on",
    ),
    Field("sync", "sync_all_us", "float", "us", 0, 1e5, "barrier of a die"),
    Field("sync", "kernel_launch_us", "float", "us", 0, 1e5, "launch in a graph"),
    Field(
        "sync", "core_start_us", "float", "us", 0, 1e3, "start of each core at a launch"
    ),
    Field("sync", "host_launch_us", "float", "us", 0, 1e5, "launch by the host"),
    Field(
        "links", "dies_per_package", "int", "dies", 1, 64, "dies that share a package"
    ),
    Field("links", "dies_per_node", "int", "dies", 1, 4096, "dies of a node"),
    Field(
        "links",
        "package_gbps",
        "float",
        "GB/s",
        0.01,
        1e6,
        "remote writes within a package, over a link of their own, each direction",
    ),
    Field(
        "links",
        "link_gbps",
        "float",
        "GB/s",
        0.01,
        1e6,
        "remote writes of a die within its node, each direction, effective",
    ),
    Field(
        "links",
        "across_gbps",
        "float",
        "GB/s",
        0.01,
        1e6,
        "remote writes of a die to other nodes, each direction, effective",
    ),
    Field(
        "links",
        "message_half_bytes",
        "float",
        "B",
        0,
        1e9,
        "length of a row at which links and the driving core reach half of their rate",
    ),
    Field(
        "links",
        "put_core_gbps",
        "float",
        "GB/s",
        0.01,
        1e6,
        "remote writes that one vector core drives",
    ),
    Field(
        "links",
        "put_issue_us",
        "float",
        "us",
        0,
        1e4,
        "fixed cost of one put within a node: descriptor, fence before the signal",
    ),
    Field(
        "links",
        "across_issue_us",
        "float",
        "us",
        0,
        1e4,
        "the same between nodes, from where the answer to the fence takes longer",
    ),
    Field("links", "package_hop_us", "float", "us", 0, 1e5, "latency in a package"),
    Field("links", "hop_us", "float", "us", 0, 1e5, "latency within a node"),
    Field("links", "across_hop_us", "float", "us", 0, 1e5, "latency between nodes"),
    Field(
        "links",
        "collective_gbps",
        "float",
        "GB/s",
        0.01,
        1e6,
        "host-driven all-to-all of a die, each direction",
    ),
)

BY_KEY: dict[str, Field] = {field.key: field for field in FIELDS}
GROUPS: tuple[str, ...] = tuple(dict.fromkeys(field.group for field in FIELDS))

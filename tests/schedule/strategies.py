"""Random schedules for Hypothesis: any field values whose references resolve."""

from __future__ import annotations

from hypothesis import strategies as st

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
    Region,
    Schedule,
    Set,
    Task,
    Team,
    Wait,
)

numbers = st.integers(0, 2**53 - 1)
sizes = st.integers(1, 2**20)
floats = st.floats(allow_nan=False, allow_infinity=False)
texts = st.text(max_size=8)
names = st.text(min_size=1, max_size=6)
dtypes = st.sampled_from(sorted(DTYPE_BYTES))
params = st.dictionaries(texts, floats, max_size=2).map(lambda d: tuple(d.items()))


def tuples(of, **size):
    return st.lists(of, **size).map(tuple)


activations = st.builds(Activation, st.sampled_from(ACTIVATIONS), floats, floats)


@st.composite
def layers(draw):
    ep = draw(st.integers(1, 4))
    experts = draw(st.integers(ep, 9))
    return Layer(
        draw(texts),
        draw(tuples(st.integers(0, 5), min_size=ep, max_size=ep).filter(any)),
        draw(sizes),
        draw(sizes),
        experts,
        draw(st.integers(1, experts)),
        draw(activations),
        draw(dtypes),
        ep,
        draw(st.sampled_from(["output", "input"])),
        draw(st.booleans()),
    )


@st.composite
def routings(draw, layer):
    kind = draw(st.sampled_from(["balanced", "zipf", "counts", "ids"]))
    origin, values = draw(texts), draw(params)
    if kind == "counts":
        row = tuples(numbers, min_size=layer.experts, max_size=layer.experts)
        table = draw(tuples(row, min_size=layer.ep, max_size=layer.ep))
        return Routing(kind, values, counts=table, origin=origin)
    if kind == "ids":
        experts = st.integers(-1, layer.experts - 1)
        token = tuples(experts, min_size=layer.top_k, max_size=layer.top_k)
        ids = tuple(draw(tuples(token, min_size=n, max_size=n)) for n in layer.tokens)
        return Routing(kind, values, ids=ids, origin=origin)
    return Routing(kind, values, origin=origin)


buffers = st.builds(
    Buffer,
    names,
    st.sampled_from(SPACES),
    sizes,
    dtypes,
    st.sampled_from(ROLES),
    numbers,
    numbers,
    st.booleans(),
    texts,
)
# Few names and ids, so that some are declared twice.
events = st.builds(
    Event,
    st.integers(0, 12),
    st.sampled_from(["a", "b", "c[0,1]", "é", '"', "\u2028"]),
    numbers,
)
bases = st.builds(Base, sizes, numbers, numbers)
teams = st.builds(Team, st.sampled_from(UNITS), numbers, sizes)


@st.composite
def instructions(draw, buffer_names, event_ids, locs):
    loc = draw(st.integers(0, locs - 1))
    indices = st.one_of(st.none(), st.integers(0, 99))
    regions = st.builds(Region, st.sampled_from(buffer_names), indices, indices)
    ids = st.sampled_from(event_ids)
    kind = draw(st.integers(0, 4))
    if kind == 0:
        return Wait(draw(ids), draw(numbers), loc)
    if kind == 1:
        return Set(draw(ids), loc)
    if kind == 2:
        return Barrier(draw(st.sampled_from(SCOPES)), draw(st.booleans()), loc)
    if kind == 3:
        lists = tuples(regions, max_size=3)
        task = (draw(names), draw(lists), draw(lists), draw(bases), draw(params))
        return Task(*task, loc)
    return Put(
        draw(st.sampled_from(PUT_KINDS)),
        draw(numbers),
        draw(numbers),
        draw(st.integers(1, 2**16)),
        draw(regions),
        draw(regions),
        draw(st.one_of(st.none(), ids)),
        draw(st.sampled_from(TRANSPORTS)),
        draw(st.booleans()),
        draw(tuples(regions, max_size=2)),
        loc,
    )


@st.composite
def schedules(draw):
    """Any schedule that a file can hold, sensible or not."""
    layer = draw(layers())
    some_buffers = draw(tuples(buffers, min_size=1, max_size=4))
    some_events = draw(tuples(events, min_size=1, max_size=5))
    locs = draw(tuples(texts, min_size=1, max_size=3))
    instrs = instructions(
        [buffer.name for buffer in some_buffers],
        [event.id for event in some_events],
        len(locs),
    )
    queues = st.builds(Queue, teams, tuples(instrs, max_size=5))
    return Schedule(
        layer=layer,
        machine=draw(names),
        policy=draw(texts),
        mode=draw(st.sampled_from(["forward", "backward", "train"])),
        pipeline=draw(texts),
        routing=draw(routings(layer)),
        groups=draw(tuples(tuples(numbers, max_size=3), min_size=1, max_size=3)),
        row_chunks=draw(st.integers(1, 2**16)),
        buffers=some_buffers,
        events=some_events,
        queues=draw(tuples(queues, max_size=3)),
        locs=locs,
        padded=draw(
            st.dictionaries(texts, sizes, max_size=2).map(lambda d: tuple(d.items()))
        ),
        notes=draw(tuples(texts, max_size=2)),
    )

"""Files that are no schedule are refused, with the path of the fault and the reason."""

from __future__ import annotations

import contextlib
import copy
import json
import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpc.schedule.layer import Routing
from hpc.schedule.reader import (
    MOST_PAIRS,
    MOST_ROWS,
    ScheduleFormatError,
    load_schedule,
    read_schedule,
)
from hpc.schedule.writer import dump_schedule
from tests.builders import small_layer, standard_schedule

GOOD = dump_schedule(standard_schedule(small_layer(), ((0,), (1,))))
DELETE = object()


def changed(path, value):
    """The good file with the value at a path of keys replaced, or deleted."""
    data = json.loads(GOOD)
    at = data
    for key in path[:-1]:
        at = at[key]
    if value is DELETE:
        del at[path[-1]]
    else:
        at[path[-1]] = value
    return json.dumps(data)


def refusal(text):
    with pytest.raises(ScheduleFormatError) as caught:
        load_schedule(text, "f.ssc.json")
    return str(caught.value)


CODE = ("queues", 0, "code")
WAIT = (*CODE, 0)
TASK = (*CODE, 1)
PUT = ("queues", 1, "code", 0)

# (path of the value to change, new value, path in the message, what is said)
VARIANTS = [
    (("format",), "other", "$.format", 'expected "hpc-ssc", got "other"'),
    (("format",), DELETE, "$", 'key "format" is missing'),
    (("version",), 2, "$.version", "expected version 1, the one this program reads"),
    (("version",), True, "$.version", "expected version 1.*got true"),
    (("version",), DELETE, "$.version", "expected version 1.*got null"),
    (("hash",), "sha256:12", "$.hash", 'expected "sha256:" and 64 hex digits'),
    (("hash",), 7, "$.hash", "64 hex digits, got 7"),
    (("extra",), 1, "$", 'unknown key "extra"; the keys are format, version'),
    (("machin",), "x", "$", 'unknown key "machin"; did you mean "machine"'),
    (("machine",), DELETE, "$", 'key "machine" is missing'),
    (("machine",), "", "$.machine", "expected non-empty string"),
    (("machine",), None, "$.machine", "expected non-empty string, got null"),
    (("mode",), "foward", "$.mode", 'got "foward"; did you mean "forward"'),
    (("queues",), {}, "$.queues", "expected a list of queue object, got an object"),
    (("events",), "x", "$.events", 'expected a list of event object, got "x"'),
    (("groups",), [], "$.groups", "at least 1 entries, got 0"),
    (("groups", 1, 0), -1, "$.groups[1][0]", "expected integer >= 0, got -1"),
    (("row_chunks",), 0, "$.row_chunks", "expected integer 1..65536, got 0"),
    (("layer", "hidden"), 7.0, "$.layer.hidden", "got 7.0"),
    (("layer", "hidden"), True, "$.layer.hidden", "got true"),
    (("layer", "hidden"), "32", "$.layer.hidden", 'got "32"'),
    (("layer", "hiden"), 32, "$.layer", 'unknown key "hiden"; did you mean "hidden"'),
    (("layer", "tokens"), [16], "$.layer.tokens", "expected 2 entries.*got 1"),
    (("layer", "tokens"), [0, 0], "$.layer.tokens", "expected a rank .* a token"),
    (("layer", "top_k"), 5, "$.layer.top_k", "at most 4 .experts., got 5"),
    (("layer", "experts"), 1, "$.layer.top_k", "at most 1 .experts., got 2"),
    (("layer", "ep"), 3, "$.layer.tokens", "expected 3 entries, one a rank, got 2"),
    (("layer", "experts"), 70000, "$.layer.experts", "1..65536, got 70000"),
    (("layer", "dtype"), "int8", "$.layer.dtype", 'got "int8"'),
    (
        ("layer", "activation", "name"),
        "swigloo",
        "$.layer.activation.name",
        'did you mean "swiglu"',
    ),
    (
        ("routing",),
        {"kind": "counts", "counts": [[1, 2, 3, 4]]},
        "$.routing.counts",
        "expected 2 rows, one a rank, got 1",
    ),
    (
        ("routing",),
        {"kind": "counts", "counts": [[1, 2, 3, 4], [1]]},
        "$.routing.counts[1]",
        "expected 4 entries, one an expert, got 1",
    ),
    (
        ("routing",),
        {"kind": "ids", "ids": [[[0, 1]] * 16, [[0, 1]] * 15 + [[0, 9]]]},
        "$.routing.ids[1][15][1]",
        "an expert below 4 or -1, got 9",
    ),
    (
        ("routing",),
        {"kind": "ids", "ids": [[[0, 1]] * 16, [[0]] * 16]},
        "$.routing.ids[1][0]",
        r"expected 2 slots \(top_k\), got 1",
    ),
    (
        ("routing",),
        {"kind": "zipf", "params": {"s": "big"}},
        "$.routing.params.s",
        'expected finite number, got "big"',
    ),
    (("buffers", 0, "cols"), 0, "$.buffers[0].cols", "got 0"),
    (("buffers", 0, "space"), "rows", "$.buffers[0].space", 'got "rows"'),
    (("buffers", 0, "name"), DELETE, "$.buffers[0]", 'key "name" is missing'),
    (("events", 2, "need"), 2**60, "$.events[2].need", "got 1152921504606846976"),
    (("queues", 1, "team", "size"), 0, "$.queues[1].team.size", "got 0"),
    (("queues", 1, "team", "unit"), "gpu", "$.queues[1].team.unit", 'got "gpu"'),
    ((*WAIT, "event"), "arived[0,0]", "$.queues[0].code[0].event", 'mean "arrived'),
    ((*WAIT, "event"), 4096, "$.queues[0].code[0].event", "no event has the id 4096"),
    ((*WAIT, "event"), None, "$.queues[0].code[0].event", "event name, got null"),
    ((*WAIT, "need"), -1, "$.queues[0].code[0].need", "got -1"),
    ((*WAIT, "loc"), 1, "$.queues[0].code[0].loc", r"index into locs \(0..0\), got 1"),
    ((*WAIT, "do"), "wayt", "$.queues[0].code[0].do", 'did you mean "wait"'),
    ((*WAIT, "do"), DELETE, "$.queues[0].code[0]", 'key "do" is missing'),
    ((*WAIT,), [1], "$.queues[0].code[0]", "expected an instruction object"),
    ((*TASK, "event"), 1, "$.queues[0].code[1]", 'unknown key "event"'),
    ((*TASK, "reads", 0, 0), "recw", "$.queues[0].code[1].reads[0][0]", 'mean "recv"'),
    ((*TASK, "reads", 0, 1), 0.0, "$.queues[0].code[1].reads[0][1]", "got 0.0"),
    ((*TASK, "reads", 0), [], "$.queues[0].code[1].reads[0]", "got 0 entries"),
    ((*TASK, "reads", 0), "recv", "$.queues[0].code[1].reads[0]", "expected a region"),
    ((*TASK, "base", "m"), 0, "$.queues[0].code[1].base.m", "got 0"),
    ((*PUT, "kind"), "scatter", "$.queues[1].code[0].kind", 'got "scatter"'),
    ((*PUT, "scale"), 1, "$.queues[1].code[0].scale", "expected true or false, got 1"),
    ((*PUT, "chunks"), 0, "$.queues[1].code[0].chunks", "got 0"),
]


@pytest.mark.parametrize(("path", "value", "where", "what"), VARIANTS)
def test_a_broken_value_is_refused_with_its_path(path, value, where, what):
    message = refusal(changed(path, value))
    assert message.startswith(f"f.ssc.json: error: at {where}: ")
    assert re.search(what, message)


RAW = [
    ("", r"f.ssc.json:1:1: error: the schedule is empty"),
    ("   \n", r"f.ssc.json:\d:\d: error: the schedule is empty"),
    ("schedule", r"f.ssc.json:1:1: error: the schedule is not JSON"),
    ("\0\1\2", r"f.ssc.json:1:1: error: the schedule is not JSON"),
    (GOOD[: len(GOOD) // 2], r"f.ssc.json:\d+:\d+: error: the schedule is not JSON"),
    (GOOD + "x", r"f.ssc.json:\d+:\d+: error: the schedule is not JSON: Extra data"),
    ("[" * 200_000, r"f.ssc.json: error: the schedule is nested too deeply"),
    ("7", r"at \$: expected a schedule object, got 7"),
    ("[]", r"at \$: expected a schedule object, got a list"),
    ("{}", r'at \$: key "format" is missing'),
    ('{"a": 1, "a": 2}', r'at \$: .* got an object that has the key "a" twice'),
]


@pytest.mark.parametrize(("text", "message"), RAW, ids=range(len(RAW)))
def test_text_that_is_no_object_is_refused(text, message):
    assert re.search(message, refusal(text))


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_numbers_that_are_not_finite_are_refused(number):
    text = GOOD.replace('"swiglu"}', f'"swiglu_oai", "alpha": {number}}}')
    assert "at $.layer.activation.alpha: expected finite number" in refusal(text)


def test_a_number_of_ten_thousand_digits_is_refused_shortly():
    text = GOOD.replace('"hidden": 32', '"hidden": ' + "9" * 10_000)
    message = refusal(text)
    assert "at $.layer.hidden: expected integer 1..16777216, got 99" in message
    assert "(10000 digits)" in message
    assert len(message) < 200


def test_a_repeated_key_deep_inside_is_refused_with_its_path():
    text = GOOD.replace('"do": "set", ', '"do": "set", "loc": 0, ', 1)
    assert refusal(text) == (
        "f.ssc.json: error: at $.queues[0].code[2]: expected an instruction object, "
        'got an object that has the key "loc" twice'
    )


def test_strings_of_the_file_cannot_spoil_the_terminal():
    """Control characters and lone surrogates are escaped, long strings cut."""
    message = refusal(changed((*WAIT, "event"), "\x1b[2J\ud800" + "x" * 10_000))
    assert message.isascii()
    assert message.isprintable()
    assert len(message) < 200


def test_sizes_beyond_the_limits_are_refused_with_the_numbers():
    data = json.loads(GOOD)
    data["layer"].update(ep=4096, tokens=[1] * 4096, experts=65536)
    assert f"at most {MOST_PAIRS} pairs" in refusal(json.dumps(data))
    data["layer"].update(ep=8, tokens=[1] * 8, experts=7)
    assert "at $.layer.experts: expected at least 8 (ep), got 7" in refusal(
        json.dumps(data)
    )
    data["layer"].update(ep=2, tokens=[MOST_ROWS // 2] * 2, experts=4)
    message = refusal(json.dumps(data))
    assert f"at most {MOST_ROWS} rows over all ranks, got {2 * MOST_ROWS}" in message


def test_limits_are_those_of_the_language():
    from hpc.spec import layer_block

    assert MOST_ROWS == layer_block.MAX_ROWS
    assert MOST_PAIRS == layer_block.MAX_PAIRS


def test_a_file_that_is_not_utf8_is_refused(tmp_path):
    path = tmp_path / "binary.ssc.json"
    path.write_bytes(b'{"format": "\xff"}')
    with pytest.raises(ScheduleFormatError, match=r"byte 12 \(0xff\) is not UTF-8"):
        read_schedule(path)


def test_a_missing_file_and_a_directory_are_errors_of_the_system(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_schedule(tmp_path / "none.ssc.json")
    with pytest.raises(IsADirectoryError):
        read_schedule(tmp_path)


def test_the_message_names_the_file_that_was_read(tmp_path):
    path = tmp_path / "bad.ssc.json"
    path.write_text("{}")
    with pytest.raises(ScheduleFormatError, match=re.escape(f"{path}: error: at $: ")):
        read_schedule(path)


@given(st.binary(max_size=200))
def test_random_bytes_are_refused(data):
    with pytest.raises(ScheduleFormatError):
        load_schedule(data.decode("latin-1"))


@given(st.integers(0, len(GOOD) - 2))
def test_every_truncation_is_refused(length):
    assert "f.ssc.json:" in refusal(GOOD[:length])


ODDITIES = [None, True, -1, 0, 1, 1.5, 2**70, "", "x", [], {}, [[]], {"a": 1}]


@given(st.integers(0, 2**32 - 1))
def test_any_value_replaced_by_any_other_is_refused_or_read(seed):
    """Nothing but ScheduleFormatError ever leaves the reader."""
    rng = random.Random(seed)
    routing = Routing("counts", counts=((8, 8, 8, 8),) * 2)
    s = standard_schedule(small_layer(), routing=routing)
    data = json.loads(dump_schedule(s))
    for _ in range(rng.randint(1, 2)):
        at, key = None, None
        value = data
        while isinstance(value, dict | list) and value and rng.random() < 0.85:
            keys = list(value) if isinstance(value, dict) else range(len(value))
            at, key = value, rng.choice(keys)
            value = value[key]
        if at is not None:
            at[key] = copy.deepcopy(rng.choice(ODDITIES))
    with contextlib.suppress(ScheduleFormatError):
        read = load_schedule(json.dumps(data))
        assert load_schedule(dump_schedule(read)) == read

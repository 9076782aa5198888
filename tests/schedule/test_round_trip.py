"""Writer and reader are inverses, and the bytes are stable."""

from __future__ import annotations

import dataclasses
import json
import os
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings

from hpc.schedule import schema
from hpc.schedule.layer import Activation, Layer, Routing
from hpc.schedule.model import Base, Schedule, Task
from hpc.schedule.reader import HEAD, load_schedule, read_schedule, was_edited
from hpc.schedule.schema import SCHEDULE
from hpc.schedule.shapes import REQUIRED, Items, Record, Union
from hpc.schedule.writer import dump_schedule, globals_hash, write_schedule
from tests.builders import edited, small_layer, standard_schedule, with_buffer
from tests.schedule.strategies import schedules

GOLDEN = Path(__file__).parent / "small.ssc.json"
README = Path(schema.__file__).parent / "README.md"
RECORDS = [value for value in vars(schema).values() if isinstance(value, Record)]


def golden() -> Schedule:
    """One expert a rank, clamped activation, two chunks: every kind of field."""
    layer = small_layer(
        experts=2, top_k=1, activation=Activation("swiglu_oai", 1.5, 6.0)
    )
    s = standard_schedule(layer, ((0,), (1,)), chunks=2)
    return replace(s, padded=(("hidden", 32),), notes=("made by hand",))


@settings(max_examples=80)
@given(schedules())
def test_load_inverts_dump(s):
    text = dump_schedule(s)
    assert load_schedule(text) == s
    assert dump_schedule(load_schedule(text)) == text
    assert not was_edited(text)
    assert text.isascii()
    assert text.endswith("}\n")


def test_golden_file():
    """To renew it after a change of the format: python -m tests.schedule.golden."""
    assert dump_schedule(golden()) == GOLDEN.read_text()
    assert read_schedule(GOLDEN) == golden()


def test_one_instruction_a_line():
    s = golden()
    lines = GOLDEN.read_text().splitlines()
    assert sum('{"do": ' in line for line in lines) == sum(
        len(queue.code) for queue in s.queues
    )
    assert all(line.count('{"do": ') <= 1 for line in lines)
    assert sum(line.startswith('  {"id": ') for line in lines) == len(s.events)


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.name)
def test_the_schema_has_every_field_of_the_model(record):
    """A field added to the model but not to the schema would be lost silently."""
    assert [field.key for field in record.fields if record is not SCHEDULE] == [
        field.name
        for field in dataclasses.fields(record.make)
        if record is not SCHEDULE
    ]
    for field in dataclasses.fields(record.make):
        (mine,) = (each for each in record.fields if each.key == field.name)
        if mine.default is not REQUIRED:
            assert mine.default == _default(field)


def _default(field):
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


def test_every_record_of_the_model_is_in_the_schema():
    reached: list[Record] = []

    def walk(shape):
        if isinstance(shape, Record):
            reached.append(shape)
            for field in shape.fields:
                walk(field.shape)
        elif isinstance(shape, Union):
            for record in shape.cases:
                walk(record)
        elif isinstance(shape, Items):
            walk(shape.of)

    walk(SCHEDULE)
    assert {id(record) for record in reached} == {id(record) for record in RECORDS}
    assert {Layer, Routing, Schedule} <= {record.make for record in reached}


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.name)
def test_the_readme_describes_every_field(record):
    text = README.read_text()
    for field in (*HEAD, *record.fields):
        assert f"| `{field.key}` |" in text, f"{record.name}: {field.key}"


def test_numbers_that_json_cannot_hold_are_not_written():
    task = Task("add", (), (), Base(1), (("x", float("nan")),))
    s = standard_schedule(small_layer())
    s = edited(s, 0, 1, params=task.params)
    with pytest.raises(ValueError, match="not JSON compliant"):
        dump_schedule(s)


def test_white_space_is_no_edit_but_a_changed_number_is():
    text = GOLDEN.read_text()
    assert not was_edited(json.dumps(json.loads(text), indent=4))
    assert was_edited(text.replace('"need": 24, "loc"', '"need": 23, "loc"', 1))
    head = json.loads(text)
    del head["hash"]
    assert was_edited(json.dumps(head))


def test_an_edited_file_is_read_as_it_stands():
    text = GOLDEN.read_text().replace('"machine": "ascend_a3"', '"machine": "mine"')
    assert load_schedule(text) == replace(golden(), machine="mine")
    assert was_edited(text)


def test_a_byte_order_mark_and_windows_line_ends_are_read(tmp_path):
    path = tmp_path / "edited.ssc.json"
    text = GOLDEN.read_text().replace("\n", "\r\n")
    path.write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert read_schedule(path) == golden()


def test_events_may_be_named_by_id_in_an_edited_file():
    text = GOLDEN.read_text()
    assert text.count('"event": "returned"') > 1
    returned = next(e.id for e in golden().events if e.name == "returned")
    assert load_schedule(
        text.replace('"event": "returned"', f'"event": {returned}')
    ) == (golden())


def test_the_globals_hash_covers_what_ranks_share():
    s = golden()
    same = edited(s, 0, 0, need=7)
    assert globals_hash(same) == globals_hash(s)
    for other in (
        replace(s, groups=((0, 1),)),
        replace(s, machine="ascend_a2"),
        replace(s, layer=replace(s.layer, hidden=64)),
        with_buffer(s, "recv", capacity_rows=1),
    ):
        assert globals_hash(other) != globals_hash(s)
    assert globals_hash(with_buffer(s, "h", capacity_rows=1)) == globals_hash(s)


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path, monkeypatch):
    path = tmp_path / "out.ssc.json"
    path.write_text("old")

    def refuse(*_):
        raise OSError("no space")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(OSError, match="no space"):
        write_schedule(golden(), path)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_writing_follows_a_link_and_replaces_the_file(tmp_path):
    path, link = tmp_path / "out.ssc.json", tmp_path / "link"
    path.write_text("old")
    link.symlink_to(path)
    write_schedule(golden(), link)
    assert link.is_symlink()
    assert path.read_bytes() == GOLDEN.read_bytes()
    assert sorted(tmp_path.iterdir()) == [link, path]


def test_a_device_is_written_not_replaced():
    write_schedule(golden(), "/dev/null")
    assert not Path("/dev/null").is_file()


def test_a_directory_is_no_file(tmp_path):
    with pytest.raises(IsADirectoryError):
        write_schedule(golden(), tmp_path)


def test_twelve_thousand_instructions_are_written_and_read_quickly():
    """Measured 0.07 s and 0.13 s; ten times that would be a change of complexity."""
    layer = small_layer(ep=32, tokens=(16,) * 32, experts=32 * 32)
    s = standard_schedule(layer, tuple((k,) for k in range(32)))
    assert sum(len(queue.code) for queue in s.queues) > 12_000
    start = time.perf_counter()
    text = dump_schedule(s)
    written = time.perf_counter()
    assert load_schedule(text) == s
    assert written - start < 1
    assert time.perf_counter() - written < 2

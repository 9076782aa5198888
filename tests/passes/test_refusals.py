"""Whatever a pass is given, it does its work or refuses with one line."""

from __future__ import annotations

import re

import pytest
from xdsl.dialects.builtin import DictionaryAttr, ModuleOp
from xdsl.ir import Operation
from xdsl.utils.exceptions import (
    DiagnosticException,
    ParseError,
    PassFailedException,
    VerifyException,
)

from passes.pipeline import PASSES
from tests.passes.support import (
    POLICIES,
    TINY,
    from_spec,
    level_text,
    lower,
    parse,
    steps,
)

LEVELS = range(len(steps("list")) + 1)


def refusal(module: ModuleOp, pipeline: str) -> str:
    """The message of the pass that refuses `module`, which must be one line."""
    with pytest.raises(PassFailedException) as caught:
        lower(module, pipeline)
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize("level", LEVELS)
def test_passes_out_of_order_work_or_refuse(level: int) -> None:
    for name in PASSES:
        module = parse(level_text("list", level))
        message = outcome(module, name)
        assert message is None or "\n" not in message, name


OPTIONS = [
    ("moe-tile{groups=0}", "groups must be 1 to 2, got 0"),
    ("moe-tile{groups=-1}", "groups must be 1 to 2, got -1"),
    ("moe-tile{groups=3}", "groups must be 1 to 2, got 3"),
    ("moe-tile{row-chunks=0}", "row_chunks must be 1 to 8, got 0"),
    ("moe-tile{row-chunks=9}", "row_chunks must be 1 to 8, got 9"),
    ('moe-tile{policy="fastest"}', "unknown policy 'fastest'; there are serial,"),
    ('moe-tile{policy=""}', "unknown policy ''; there are serial, paper, list"),
    ("tile-select-gmm{base=0,0,0}", "m = 0 is not a positive multiple of 16"),
    ("tile-select-gmm{base=16,16,-16}", "k = -16 is not a positive multiple of 16"),
    ("tile-select-gmm{base=16,16}", "a base tile is m, n, k, got [16, 16]"),
    ("tile-select-gmm{base=256,256,64}", "L0C"),
    ("tile-place{aic=0}", "aic must be 1 to the 24 cores of ascend_a3, got 0"),
    ("tile-place{aic=25}", "aic must be 1 to the 24 cores of ascend_a3, got 25"),
    ("tile-place{comm-aiv=-1}", "comm_aiv must be 1 to the 48 cores"),
    (
        "tile-place{comm-aiv=48}",
        "comm_aiv = 48 leaves no AIV core of ascend_a3 for vector work",
    ),
    (
        "tile-place{vector-aiv=48}",
        "vector_aiv = 48 leaves no AIV core of ascend_a3 for communication",
    ),
    (
        "tile-place{comm-aiv=30 vector-aiv=30}",
        "comm_aiv + vector_aiv = 30 + 30 = 60 exceeds the 48 AIV cores of ascend_a3",
    ),
    ("tile-lower-comm{chunks=0}", "chunks must be 1 to 8, got 0"),
    ("tile-lower-comm{chunks=9}", "chunks must be 1 to 8, got 9"),
    ('tile-schedule{policy="x"}', "unknown policy 'x'; there are serial,"),
    ("npu-allocate-events{limit=0}", "limit must be 1 to 1024, got 0"),
    ("npu-allocate-events{limit=2000}", "limit must be 1 to 1024, got 2000"),
    ("npu-allocate-events{limit=3}", "the schedule needs 17 events, 9 when all"),
]


@pytest.mark.parametrize(("text", "says"), OPTIONS, ids=[o[0] for o in OPTIONS])
def test_options_out_of_range_are_refused(text: str, says: str) -> None:
    names = [step.split("{")[0] for step in steps("list")]
    level = names.index(text.split("{")[0])
    assert says in refusal(parse(level_text("list", level)), text)


def test_a_refusal_of_a_compiled_file_begins_with_its_line() -> None:
    message = refusal(from_spec(TINY), "moe-tile{groups=7}")
    assert message == "test.moe:1:1: error: groups must be 1 to 2, got 7"


@pytest.mark.parametrize("name", PASSES)
def test_a_module_without_its_program_is_refused(name: str) -> None:
    kind = "npu.program"
    if name.startswith("moe-"):
        kind = "moe.layer"
    elif name.startswith("tile-") or name == "npu-insert-flags":
        kind = "tile.program"
    message = refusal(parse("builtin.module {}"), name)
    assert message == f"{name} works on {kind}, and the module has nothing"


@pytest.mark.parametrize("policy", POLICIES)
def test_two_programs_in_a_module_compile_like_one(policy: str) -> None:
    body = level_text(policy, 0).removeprefix("builtin.module {").removesuffix("}")
    twice = f"builtin.module {{ {body} {body.replace('@tiny', '@other')} }}"
    module = lower(parse(twice), ",".join(steps(policy)))
    first, second = (str(op) for op in module.ops)
    assert first == second.replace("@other", "@tiny")


def spec_keys() -> list[str]:
    layer = next(iter(from_spec(TINY).ops))
    spec = layer.properties["spec"]
    assert isinstance(spec, DictionaryAttr)
    return list(spec.data)


@pytest.mark.parametrize("key", spec_keys())
def test_a_spec_that_lacks_something_is_refused_by_name(key: str) -> None:
    module = from_spec(TINY)
    layer = next(iter(module.ops))
    spec = layer.properties["spec"]
    assert isinstance(spec, DictionaryAttr)
    rest = {name: value for name, value in spec.data.items() if name != key}
    layer.properties["spec"] = DictionaryAttr(rest)
    assert f"the spec of the program lacks '{key}'" in refusal(module, "moe-tile")


WRONG_SPECS = [
    ("tokens = array<i64: 8, 8>", "tokens = array<i64>", "tokens must be a count"),
    ("tokens = array<i64: 8, 8>", "tokens = array<i64: -8, 8>", "tokens must be"),
    ("tokens = array<i64: 8, 8>", "tokens = array<i64: 9, 8>", "does not fit the spec"),
    ("tokens = array<i64: 8, 8>", "tokens = 8 : i64", "must be tuple"),
    ("hidden = 64 : i64", "hidden = 0 : i64", "hidden = 0, and every size"),
    ("hidden = 64 : i64", 'hidden = "big"', "'hidden' in the spec must be int"),
    ("experts = 4 : i64", "experts = 1 : i64", "1 experts are fewer than the 2"),
    ("experts = 4 : i64", "experts = 6 : i64", "does not fit the spec: 3, and not 2"),
    ("top_k = 2 : i64", "top_k = 5 : i64", "top_k = 5 exceeds the 4 experts"),
    ("top_k = 2 : i64", "top_k = 1 : i64", "8 tokens x 1 slots, and not 8 tokens x 2"),
    ('dtype = "bf16"', 'dtype = "int3"', "dtype must be one of bf16, fp16, fp32"),
    ('activation = "swiglu"', 'activation = "tanh"', "activation must be one of"),
    ('"output"', '"nowhere"', "weights_at must be one of output, input"),
    ('kind = "balanced"', 'kind = "random"', "unknown routing 'random'"),
    ('kind = "balanced"', 'kind = "counts", counts = [1.0 : f32]', "no table"),
    ('kind = "balanced"', 'kind = "counts", counts = []', "the routing does not fit"),
    ("routing =", "pins = {color = 3 : i64}, routing =", "unknown pin 'color'"),
    ("routing =", "pins = {groups = 9 : i64}, routing =", "the pin groups must be 1"),
    ("routing =", "pins = {groups = 0 : i64}, routing =", "the pin 'groups' in the"),
    ("routing =", 'pins = {policy = "x"}, routing =', "unknown policy 'x'"),
    ("routing =", "pins = 3 : i64, routing =", "'pins' in the spec is no"),
    ('on "ascend_a3"', 'on "ascend_a9"', "unknown machine"),
    ('on "ascend_a3"', 'on "no/such.toml"', "No such file"),
]


@pytest.mark.parametrize(("old", "new", "says"), WRONG_SPECS)
def test_a_spec_that_cannot_be_is_refused(old: str, new: str, says: str) -> None:
    text = level_text("list", 0, TINY)
    assert old in text
    assert says in refusal(parse(text.replace(old, new, 1)), "moe-tile")


def outcome(module: ModuleOp, pipeline: str) -> str | None:
    """The diagnostic that stops the pipeline; None if nothing does."""
    try:
        module.verify()
        lower(module, pipeline)
    except (DiagnosticException, VerifyException) as error:
        return str(error)
    return None


def erase(op: Operation) -> None:
    op.detach()
    op.drop_all_references()
    op.erase(safe_erase=False)


def removable(module: ModuleOp) -> list[Operation]:
    """Operations inside the program that nothing uses."""
    program = next(iter(module.ops))
    used = [op for op in program.walk() if op is not program]
    return [op for op in used if not any(r.uses for r in op.results)]


@pytest.mark.parametrize("level", LEVELS)
def test_removing_any_operation_compiles_or_is_diagnosed(level: int) -> None:
    """Nothing but a diagnostic may come out of IR with an operation too few."""
    text, rest = level_text("list", level), ",".join(steps("list")[level:])
    count = len(removable(parse(text)))
    for index in range(0, count, 1 + count // 20):
        module = parse(text)
        erase(removable(module)[index])
        outcome(module, rest)


NUMBER = re.compile(r"(?<![\w%#@.])\d+(?!\.)")


@pytest.mark.parametrize("number", ["0", "7", "1000"])
@pytest.mark.parametrize("level", [0, 1, 3, 5, 6, 9])
def test_changing_any_number_compiles_or_is_diagnosed(level: int, number: str) -> None:
    """Indices out of range, thresholds nobody meets, empty teams: all diagnosed."""
    text, rest = level_text("list", level), ",".join(steps("list")[level:])
    places = list(NUMBER.finditer(text))
    assert len(places) > 20
    for place in places[:: 1 + len(places) // 25]:
        changed = text[: place.start()] + number + text[place.end() :]
        try:
            module = parse(changed)
        except (ParseError, DiagnosticException, VerifyException):
            continue
        outcome(module, rest)

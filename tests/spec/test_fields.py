"""Fields of layer and parallel: types, limits, defaults, and what must fit."""

from __future__ import annotations

import pytest

from hpc.schedule.layer import ACTIVATIONS, Activation
from tests.spec.texts import findings, messages, only, parse, pointed, text


def test_a_layer_is_read_with_its_defaults() -> None:
    spec = parse(text(ep=None))
    layer = spec.layer
    assert (layer.name, layer.tokens, layer.hidden, layer.ep) == ("small", (4,), 64, 1)
    assert (layer.dtype, layer.weights_at, layer.repeats) == ("bf16", "output", False)
    assert (spec.machine, spec.mode, spec.routing.kind) == (
        "ascend_a3",
        "forward",
        "balanced",
    )
    assert str(spec.loc) == "t.moe:1:1"


def test_digits_may_be_grouped() -> None:
    assert parse(text(tokens="1_024")).layer.tokens == (1024, 1024)


@pytest.mark.parametrize("number", ["1__0", "_1", "1_", "0x10", "1e3", "4.0", "4k"])
def test_other_notations_are_no_integers(number: str) -> None:
    assert messages(text(tokens=number))


def test_tokens_may_differ_by_rank_and_be_zero() -> None:
    assert parse(text(tokens="[4, 0]")).layer.tokens == (4, 0)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_every_activation_sets_the_width_of_the_first_product(name: str) -> None:
    spec = parse(text(activation=name))
    assert spec.layer.activation.name == name
    assert spec.flow[1].cols == spec.layer.up_width
    assert spec.layer.up_width == (64 if Activation(name).gated else 32)


def test_oai_numbers_by_position_and_by_name() -> None:
    spec = parse(text(activation="swiglu_oai(1.5, limit = 6)"))
    assert spec.layer.activation == Activation("swiglu_oai", 1.5, 6.0)
    assert dict(spec.flow[2].params) == {"alpha": 1.5, "limit": 6.0}


def test_experts_need_not_divide_and_first_ranks_hold_more() -> None:
    layer = parse(text(experts=30, ep=8)).layer
    from hpc.schedule.layer import experts_of

    held = [len(experts_of(r, layer.experts, layer.ep)) for r in range(8)]
    assert held == [4, 4, 4, 4, 4, 4, 3, 3]


@pytest.mark.parametrize(("experts", "top_k"), [(4, 4), (129, 16), (512, 22), (7, 1)])
def test_any_expert_count_from_top_k_up(experts: int, top_k: int) -> None:
    assert parse(text(experts=experts, top_k=top_k)).layer.top_k == top_k


@pytest.mark.parametrize(
    ("fields", "place", "message"),
    [
        ({"hidden": 0}, "0", "0 is out of range: expected an integer from 1"),
        ({"hidden": -64}, "-64", "-64 is out of range"),
        ({"hidden": 1048577}, "1048577", "from 1 to 1048576"),
        ({"hidden": "64.5"}, "64.5", "expected an integer, got '64.5'"),
        ({"hidden": '"64"'}, '"64"', 'expected an integer, got the string "64"'),
        ({"hidden": "big"}, "big", "expected an integer, got the name 'big'"),
        ({"hidden": "[64]"}, "[", "expected an integer, got a list"),
        ({"tokens": "[4, x]"}, "x", "expected an integer, got the name 'x'"),
        ({"tokens": "[4, 4, 4]"}, "[", "tokens has 3 entries, but ep = 2 ranks"),
        ({"tokens": "[0, 0]"}, "[", "no rank has a token"),
        ({"tokens": "[4, -1]"}, "-1", "-1 is out of range"),
        ({"top_k": 5}, "5", "top_k = 5 exceeds experts = 4"),
        ({"dtype": "bf61"}, "bf61", "unknown dtype 'bf61'"),
        ({"dtype": "16"}, "16", "expected dtype, got '16'"),
        ({"activation": "swigul"}, "swigul", "unknown activation 'swigul'"),
        ({"activation": "relu(1)"}, "1", "takes no arguments, got 1"),
        ({"activation": "swiglu_oai(0)"}, "0", "expected a number above 0"),
        ({"activation": "swiglu_oai(nan)"}, "nan", "got the name 'nan'"),
        ({"activation": "swiglu_oai(1e999)"}, "1e999", "is out of range"),
        ({"activation": "swiglu_oai(bta = 1)"}, "bta", "has no argument 'bta'"),
        ({"weights_at": "inptu"}, "inptu", "unknown place 'inptu'"),
        ({"repeats": "yes"}, "yes", "unknown truth value 'yes'"),
        ({"ep": 0}, "0", "0 is out of range: expected an integer from 1 to 4096"),
        ({"ep": 8}, "8", "experts = 4 are fewer than ep = 8"),
    ],
)
def test_a_wrong_value_is_refused_where_it_stands(
    fields: dict[str, object], place: str, message: str
) -> None:
    found = only(text(**fields))  # type: ignore[arg-type]
    assert message in found.message
    assert pointed(found, len(place)) == place


def test_row_numbers_beyond_32_bits_are_refused_with_the_arithmetic() -> None:
    found = only(text(tokens=2_000_000_000))
    assert (
        "4000000000 tokens over all ranks * top_k 2 = 8000000000 rows" in found.message
    )
    assert "2^31" in found.message


def test_a_number_of_thousands_of_digits_is_only_out_of_range() -> None:
    found = only(text(hidden="9" * 6000))
    assert found.message.startswith("999999999999... is out of range")


def test_repeats_lift_the_limit_on_top_k() -> None:
    assert parse(text(top_k=6, repeats="true")).layer.repeats


def test_a_missing_field_is_named_at_the_layer() -> None:
    found = only(text(hidden=None))
    assert found.message == "the layer has no 'hidden'"
    assert (found.loc.line, found.loc.col) == (1, 1)


def test_a_misspelt_field_gets_a_suggestion() -> None:
    found = findings(text(hiden=64, hidden=None))
    assert [d.help for d in found if "hiden" in d.message] == ["did you mean 'hidden'?"]


def test_a_duplicate_field_cites_the_first() -> None:
    source = text().replace("  hidden = 64\n", "  hidden = 64\n  hidden = 64\n")
    found = only(source)
    assert found.message == "duplicate field 'hidden', first set at 3:3"
    assert (found.loc.line, found.loc.col) == (4, 3)


def test_a_layer_needs_a_name() -> None:
    assert only(text().replace("small ", "")).message == "the layer has no name"


def test_all_faults_of_a_file_in_one_run_in_order() -> None:
    source = text(
        'machine = ascend_x3\nrouting = file("none.json")\nmode = trian\n'
        "schedule { polcy = list }\nflow { y = gmm(dispatch(x), w_upp) }\n",
        tokens=-1,
        activation="silu",
    )
    found = findings(source)
    positions = [(d.loc.line, d.loc.col) for d in found]
    assert positions == sorted(positions)
    words = ("-1", "silu", "ascend_x3", "none.json", "trian", "polcy", "w_upp")
    for word in words:
        assert sum(word in d.message for d in found) == 1, word
    assert len(found) == len(words)

"""Every violation code has an example that the checker really refuses, and a fix."""

from __future__ import annotations

import pytest

from hpc.schedule.check import RULES
from hpc.schedule.explain import EXAMPLES, explain, rejected


def test_every_code_has_an_example():
    assert set(EXAMPLES) == set(RULES)


@pytest.mark.parametrize("code", RULES)
def test_the_example_gives_its_code(code):
    assert code in {violation.code for violation in rejected(code)[1]}


@pytest.mark.parametrize("code", RULES)
def test_an_explanation_is_complete(code):
    found = explain(code)
    assert found.rule == RULES[code]
    assert found.edits
    assert found.fix.endswith(".")
    assert found.violation.code == code


def test_few_examples_break_many_rules():
    """An example of one rule should not drown in violations of others."""
    alone = sum(len({v.code for v in rejected(code)[1]}) == 1 for code in RULES)
    assert alone >= len(RULES) // 2


def test_an_unknown_code_is_a_key_error():
    with pytest.raises(KeyError):
        explain("no-such-code")

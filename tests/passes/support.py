"""Helpers of the pass tests: text to IR, IR through passes, the IR of every level."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from io import StringIO

from hypothesis import strategies as st
from xdsl.context import Context
from xdsl.dialects.builtin import Builtin, ModuleOp
from xdsl.dialects.test import Test
from xdsl.parser import Parser
from xdsl.passes import PassPipeline
from xdsl.printer import Printer

from hpc.spec.frontend import build_module
from hpc.spec.parser import parse_spec
from hpc.universe import HPC_UNIVERSE
from passes.pipeline import PASSES, default_pipeline

POLICIES = ("serial", "paper", "list")

TINY = """layer tiny {
  tokens = 8 hidden = 64 intermediate = 32 experts = 4 top_k = 2
  activation = swiglu dtype = bf16
}
parallel { ep = 2 }
machine = ascend_a3
"""
"""The layer of samples/tiny.moe, without its flow."""

TWO_GROUPS = TINY + "schedule { groups = 2 }"
"""The same with own and remote rows apart, whatever the policy would choose."""


def context() -> Context:
    """A context that knows builtin, test and our dialects."""
    ctx = Context()
    ctx.load_dialect(Builtin)
    ctx.load_dialect(Test)
    for name, get in HPC_UNIVERSE.all_dialects.items():
        ctx.register_dialect(name, get)
    return ctx


def parse(text: str) -> ModuleOp:
    """The verified module of some IR text."""
    module = Parser(context(), text, "test.mlir").parse_module()
    module.verify()
    return module


def lower(module: ModuleOp, pipeline: str) -> ModuleOp:
    """`module` after every pass of `pipeline`, verified after each."""
    for one in PassPipeline.parse_spec(PASSES, pipeline).passes:
        one.apply(context(), module)
        module.verify()
    return module


def from_spec(text: str, pipeline: str = "") -> ModuleOp:
    """The module of `.moe` text after `pipeline`."""
    module = build_module(parse_spec(text.encode(), "test.moe"))
    module.verify()
    return lower(module, pipeline)


def show(module: ModuleOp, *, generic: bool = False, locations: bool = False) -> str:
    """The module as text."""
    out = StringIO()
    printer = Printer(out, print_generic_format=generic, print_debuginfo=locations)
    printer.print_op(module)
    return out.getvalue()


def steps(policy: str) -> list[str]:
    """The passes of the default pipeline as pass texts."""
    return default_pipeline(policy).split(",")


def levels(text: str, policy: str) -> Iterator[tuple[str, ModuleOp]]:
    """(pass, module) for the frontend's result and after each pass, one module."""
    module = from_spec(text)
    yield "frontend", module
    for step in steps(policy):
        yield step, lower(module, step)


@cache
def level_text(policy: str, passes: int, text: str = TWO_GROUPS) -> str:
    """The IR of `text` after the first so many passes of the default pipeline."""
    return show(from_spec(text, ",".join(steps(policy)[:passes])))


@st.composite
def specs(draw: st.DrawFn) -> str:
    """Small layers of every kind: activation, dtype, owners, routing, weights, pins."""
    ep = draw(st.integers(1, 5))
    experts = draw(st.integers(ep, 12))
    top_k = draw(st.integers(1, min(experts, 4)))
    activation = draw(
        st.sampled_from(("swiglu", "geglu", "relu", "relu2", "gelu"))
        | st.just("swiglu_oai(alpha = 1.5, limit = 6.0)")
    )
    tokens = draw(st.integers(1, 300))
    hidden, intermediate = (draw(st.integers(1, 12)) * 16 for _ in range(2))
    dtype = draw(st.sampled_from(("bf16", "fp16", "fp32")))
    weights = draw(st.sampled_from(("output", "input")))
    routing = draw(
        st.sampled_from(("balanced", "uniform(seed = 3)", "zipf(1.2, seed = 7)"))
    )
    groups = draw(st.none() | st.integers(1, ep))
    pins = "" if groups is None else f"schedule {{ groups = {groups} }}"
    return f"""layer random {{
  tokens = {tokens} hidden = {hidden} intermediate = {intermediate}
  experts = {experts} top_k = {top_k}
  activation = {activation} dtype = {dtype} weights_at = {weights}
}}
parallel {{ ep = {ep} }}
machine = ascend_a3
routing = {routing}
{pins}
"""

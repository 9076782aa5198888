"""A run as text: a heading, then one table with a column for each policy.

The last column says what kind of number a row holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from hpc.report.memory import buffers_text, memory_rows
from hpc.report.summary import CoreUse, PolicyReport, RunReport, Values
from hpc.report.tables import render_table
from hpc.schedule.layer import Layer, Routing
from hpc.schedule.model import Schedule

Row = list[str]

SIM = "simulated"
CHECK = "checked"

LEGEND = """\
utilization: busy share of all cores of the machine, dispatch to combine;
busy, waiting, idle: shares of the time of the cores used, whole layer.
"""

BACKWARD_LEGEND = """\
last gradient: the last combine has arrived and all gradients of weights are written;
only the local sum over a token's slots may be left.
"""


def describe(report: RunReport) -> str:
    """What was compiled: the layer, the machine and each policy's schedule."""
    schedule = report.best.schedule
    known = ", ".join(f"{n} {kind}" for kind, n in report.machine_figures.items())
    lines = [
        f"source    {report.source}",
        f"layer     {describe_layer(schedule.layer)}",
        f"routing   {describe_routing(schedule.routing)}, mode {schedule.mode}",
        f"machine   {schedule.machine}, whose figures are {known}",
    ]
    if report.assumed:
        lines.append(f"assumed   {', '.join(report.assumed)}")
    if report.fetch.dispatch != "static":
        lines.append(f"tasks     {report.fetch}")
    for policy in report.policies:
        lines.append(f"schedule  {policy.policy}: {describe_size(policy.schedule)}")
    ranks = schedule.layer.ep
    if all(policy.ranks_simulated < ranks for policy in report.policies):
        lines.append(f"simulated rank 0 for all {ranks}, which do the same")
    return "\n".join(lines) + "\n"


def describe_size(schedule: Schedule) -> str:
    """How large a schedule is."""
    count = sum(len(queue.code) for queue in schedule.queues)
    return (
        f"{count_of(len(schedule.groups), 'group')}, "
        f"{count_of(len(schedule.queues), 'queue')}, "
        f"{count_of(count, 'instruction')}, {count_of(len(schedule.events), 'event')}"
    )


def count_of(number: int, what: str) -> str:
    """`1 queue`, `2 queues`."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def describe_layer(layer: Layer) -> str:
    """One line with every number that the layer's cost depends on."""
    few, most = min(layer.tokens), max(layer.tokens)
    tokens = f"{most}" if few == most else f"{few} to {most}"
    return (
        f"{layer.name}: {layer.ep} ranks x {tokens} tokens, hidden {layer.hidden}, "
        f"intermediate {layer.intermediate} ({layer.activation.name}), "
        f"{layer.experts} experts, top-{layer.top_k}, {layer.dtype}"
    )


def describe_routing(routing: Routing) -> str:
    """`zipf(s=1.2, seed=7)`, or where the counts came from."""
    params = ", ".join(f"{key}={value:g}" for key, value in routing.params)
    name = f"{routing.kind}({params})" if params else routing.kind
    return f"{name} from {routing.origin}" if routing.origin else name


def run_text(report: RunReport, *, color: bool) -> str:
    """The whole report of `hpc run`."""
    policies = report.policies
    rows = [
        *_latency_rows(policies),
        *_core_rows(policies),
        *_cache_rows(policies),
        *memory_rows([policy.memory for policy in policies]),
        *_check_rows(policies),
        *_value_rows(report),
    ]
    table = _table(policies, rows, color=color)
    best = report.best
    buffers = buffers_text(best.policy, best.memory, color=color)
    legend = LEGEND if _is_forward(policies) else LEGEND + BACKWARD_LEGEND
    return f"{describe(report)}\n{table}{legend}\n{buffers}"


def compare_text(report: RunReport, *, color: bool) -> str:
    """The report of `hpc compare`: latencies and speed-up only."""
    serial = next(p for p in report.policies if p.policy == "serial")
    rows = _latency_rows(report.policies)
    policies = report.policies

    def speedup(policy: PolicyReport) -> str:
        return _times(serial.latency_us, policy.latency_us)

    rows.append(_row("speed-up over serial", policies, speedup, SIM))
    rows.append(_row("checks", policies, lambda p: _verdict(p.ok), CHECK))
    return f"{describe(report)}\n{_table(policies, rows, color=color)}"


def _table(policies: Sequence[PolicyReport], rows: list[Row], *, color: bool) -> str:
    columns = ["", *(policy.policy for policy in policies), ""]
    return render_table("", columns, rows, left=(0, len(columns) - 1), color=color)


def _row(
    label: str,
    policies: Iterable[PolicyReport],
    cell: Callable[[PolicyReport], str],
    kind: str,
) -> Row:
    return [label, *(cell(policy) for policy in policies), kind]


def _is_forward(policies: Sequence[PolicyReport]) -> bool:
    return policies[0].schedule.mode == "forward"


def _latency_rows(policies: Sequence[PolicyReport]) -> list[Row]:
    end = "combine" if _is_forward(policies) else "last gradient"
    return [
        _row(f"dispatch to {end}, us", policies, lambda p: _us(p.latency_us), SIM),
        _row("whole layer, us", policies, lambda p: _us(p.layer_us), SIM),
        _row("lower bound, us", policies, lambda p: _us(p.bound_us), "bound"),
        _row("  set by", policies, lambda p: p.bound_by, "bound"),
        _row("  on rank", policies, lambda p: f"{p.bound_rank}", "bound"),
        _row(
            "latency / bound", policies, lambda p: _over_bound(p), "simulated / bound"
        ),
        _row("communication hidden", policies, lambda p: _share(p.comm_hidden), SIM),
        _row("task instances", policies, lambda p: f"{p.tasks}", SIM),
    ]


def _cache_rows(policies: Sequence[PolicyReport]) -> list[Row]:
    """What of the bytes read by each operator was in L2."""
    names = dict.fromkeys(name for p in policies for name in p.l2_hits)
    if not names:
        return []

    def share(policy: PolicyReport, name: str) -> str:
        return _share(policy.l2_hits.get(name))

    return [
        _row("L2 hits, of bytes read", policies, lambda _: "", SIM),
        *(_row(f"  {n}", policies, lambda p, n=n: share(p, n), SIM) for n in names),
    ]


def _core_rows(policies: Sequence[PolicyReport]) -> list[Row]:
    """Busy and waiting by cause for each kind of core."""
    rows: list[Row] = []
    for unit in policies[0].cores:
        label = unit.upper()
        if not any(_used(policy.cores[unit]) for policy in policies):
            continue
        rows += [
            _row(f"{label} utilization", policies, lambda p, u=unit: _use(p, u), SIM),
            _row("  busy", policies, lambda p, u=unit: _share(p.cores[u].busy), SIM),
        ]
        causes = {c for p in policies for c in p.cores[unit].waiting}
        rows += [
            _row(
                f"  waiting: {cause}",
                policies,
                lambda p, u=unit, c=cause: _share(p.cores[u].waiting.get(c, 0.0)),
                SIM,
            )
            for cause in sorted(causes)
        ]
        rows.append(
            _row("  idle", policies, lambda p, u=unit: _share(p.cores[u].idle), SIM)
        )
    return rows


def _use(policy: PolicyReport, unit: str) -> str:
    return _share(policy.utilization[unit])


def _used(cores: CoreUse) -> bool:
    return cores.busy + cores.idle + sum(cores.waiting.values()) > 0


def _check_rows(policies: Sequence[PolicyReport]) -> list[Row]:
    first = policies[0]
    rows = [
        _row(f"check: {name}", policies, lambda p, n=name: _verdict(p.checks[n]), CHECK)
        for name in first.checks
    ]
    for name, reason in first.unchecked.items():
        rows.append(_row(f"check: {name}", policies, lambda _: "-", reason))
    return rows


def _value_rows(report: RunReport) -> list[Row]:
    ran = report.best.values
    if ran is None:
        return []
    policies = report.policies
    seeds = " and ".join(str(seed) for seed in ran.seeds)
    same = "yes" if report.bit_identical else "NO"
    kind = f"computed, {ran.what}, seeds {seeds}"
    if ran.against == "file":
        kind += "; the reference computes the file's own operators"
    return [
        *_error_rows(policies, kind),
        _row("  verdict", policies, lambda p: _verdict(_values(p).ok), CHECK),
        _row(
            "  same bits for all seeds and policies",
            policies,
            lambda _: same,
            "checked",
        ),
    ]


def _error_rows(policies: Sequence[PolicyReport], kind: str) -> list[Row]:
    """The error of the output; of several, that of each beside its own bound."""
    allowed = {one.name: one.allowed for p in policies for one in _values(p).outputs}
    if len(allowed) < 2:
        return [
            _row("values: largest relative error", policies, _error_cell, kind),
            _row("  allowed", policies, lambda p: f"{_values(p).allowed:.2e}", "bound"),
        ]

    def cell(policy: PolicyReport, name: str) -> str:
        found = (one for one in _values(policy).outputs if one.name == name)
        return next((_error(one.max_rel_err) for one in found), "-")

    return [
        _row("values: largest relative error", policies, lambda _: "", kind),
        *(
            _row(f"  {n}", policies, lambda p, n=n: cell(p, n), f"allowed {most:.2e}")
            for n, most in allowed.items()
        ),
    ]


def _values(policy: PolicyReport) -> Values:
    """Values of a policy; all policies have them or none."""
    assert policy.values is not None
    return policy.values


def _error_cell(policy: PolicyReport) -> str:
    return _error(_values(policy).max_rel_err)


def _error(error: float | None) -> str:
    return "not a number" if error is None else f"{error:.2e}"


def _verdict(verdict: bool) -> str:
    return "ok" if verdict else "FAILED"


def _us(value: float) -> str:
    return f"{value:.1f}"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f} %"


def _times(a: float, b: float) -> str:
    return f"{a / b:.2f}" if b > 0 else "-"


def _over_bound(policy: PolicyReport) -> str:
    return _times(policy.latency_us, policy.bound_us)

"""What checks report: violations, and the verdict of each check."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken rule. `code` is stable; `queue`, `index` and `rank` are None where
    the rule is not about one; `loc` is `file:line:col` or empty."""

    code: str
    check: str
    message: str
    queue: int | None = None
    index: int | None = None
    rank: int | None = None
    loc: str = ""
    witness: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.render()

    def render(self) -> str:
        """`LOC: error: [CODE] message`, then the witness, indented."""
        head = f"{self.loc}: " if self.loc else ""
        lines = [f"{head}error: [{self.code}] {self.message}"]
        return "\n".join(lines + [f"    {line}" for line in self.witness])


@dataclass(frozen=True, slots=True)
class CheckReport:
    """Verdicts by check. A check that did not run is in `unchecked` with the reason,
    never in `checks`."""

    checks: dict[str, bool]
    violations: tuple[Violation, ...]
    unchecked: dict[str, str]

    @property
    def ok(self) -> bool:
        """Whether every check that ran holds."""
        return all(self.checks.values())

"""What a layer is, to everything below the compiler: shapes, owners, routing.

Pure data; no xDSL. The `.moe` reader makes these, the schedule file carries them.
"""

from __future__ import annotations

from dataclasses import dataclass

DTYPE_BYTES = {"bf16": 2, "fp16": 2, "fp32": 4}
"""Bytes per element of each dtype of the language."""

MOST_ROWS = 1 << 31
"""Most rows over all ranks: row numbers are 32-bit integers on the device."""

GATED_ACTIVATIONS = ("swiglu", "geglu", "swiglu_oai")
PLAIN_ACTIVATIONS = ("relu", "relu2", "gelu")
ACTIVATIONS = GATED_ACTIVATIONS + PLAIN_ACTIVATIONS


@dataclass(frozen=True, slots=True)
class Activation:
    """An activation by name; `alpha` and `limit` matter to `swiglu_oai` only.

    Gated ones read rows `[gate | up]` of width 2 x intermediate, the gate first.

    - swiglu: silu(gate) * up
    - geglu: gelu(gate) * up, gelu exact (erf)
    - swiglu_oai: g = min(gate, limit), u = clamp(up, -limit, limit),
      (u + 1) * g * sigmoid(alpha * g)
    - relu: max(h, 0); relu2: max(h, 0)^2; gelu: exact (erf)
    """

    name: str
    alpha: float = 1.702
    limit: float = 7.0

    @property
    def gated(self) -> bool:
        return self.name in GATED_ACTIVATIONS


@dataclass(frozen=True, slots=True)
class Layer:
    """One MoE feed-forward layer under expert parallelism.

    `tokens` has one entry a rank. `weights_at` says where the router weight of a
    (token, slot) multiplies: "output" (in `reduce`) or "input" (in `dispatch`).
    `repeats` allows a token to choose one expert twice.
    """

    name: str
    tokens: tuple[int, ...]
    hidden: int
    intermediate: int
    experts: int
    top_k: int
    activation: Activation
    dtype: str
    ep: int
    weights_at: str = "output"
    repeats: bool = False

    @property
    def up_width(self) -> int:
        """Columns of GMM1's result: 2 x intermediate when gated."""
        return self.intermediate * (2 if self.activation.gated else 1)

    @property
    def max_tokens(self) -> int:
        return max(self.tokens)

    @property
    def local_experts(self) -> int:
        """Most experts on one rank; ranks with fewer have empty last experts."""
        return len(experts_of(0, self.experts, self.ep))

    @property
    def element_bytes(self) -> int:
        return DTYPE_BYTES[self.dtype]


def experts_of(rank: int, experts: int, ep: int) -> range:
    """Global experts that `rank` owns; the first `experts % ep` ranks hold one more.

    >>> [len(experts_of(r, 30, 8)) for r in range(8)]
    [4, 4, 4, 4, 4, 4, 3, 3]
    """
    share, extra = divmod(experts, ep)
    first = rank * share + min(rank, extra)
    return range(first, first + share + (rank < extra))


def owner_of(expert: int, experts: int, ep: int) -> tuple[int, int]:
    """(rank, local index) of a global expert; the inverse of `experts_of`."""
    share, extra = divmod(experts, ep)
    large = extra * (share + 1)
    if expert < large:
        return divmod(expert, share + 1)
    rank, local = divmod(expert - large, share)
    return extra + rank, local


@dataclass(frozen=True, slots=True)
class Routing:
    """How tokens choose experts.

    `kind` is balanced, uniform, zipf, hot, one_rank, counts or ids; `params` are its
    numbers by name, for example (("s", 1.2), ("seed", 7.0)). `counts[rank][expert]`
    belongs to kind "counts" (a file or a table), `ids[rank][token][slot]` to "ids",
    where -1 means "not sent". `origin` names the file a table came from.
    """

    kind: str
    params: tuple[tuple[str, float], ...] = ()
    counts: tuple[tuple[int, ...], ...] = ()
    ids: tuple[tuple[tuple[int, ...], ...], ...] = ()
    origin: str = ""

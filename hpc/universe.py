"""What this package adds to `xdsl-opt`, found through the `xdsl.universe` entry point.

Every entry is a function, so that an import happens, and can fail, only on use.
"""

from __future__ import annotations

from xdsl.ir import Dialect
from xdsl.universe import Universe
from xdsl.utils.frontend import Frontend
from xdsl.utils.target import Target

from passes.pipeline import PASSES


def get_moe() -> Dialect:
    from dialects.moe import Moe

    return Moe


def get_tile() -> Dialect:
    from dialects.tile import Tile

    return Tile


def get_npu() -> Dialect:
    from dialects.npu import Npu

    return Npu


def get_moe_frontend() -> type[Frontend]:
    from hpc.spec.frontend import MoeFrontend

    return MoeFrontend


def get_ssc_target() -> type[Target]:
    from passes.target_ssc import SscTarget

    return SscTarget


HPC_UNIVERSE = Universe(
    all_dialects={"moe": get_moe, "tile": get_tile, "npu": get_npu},
    all_passes=PASSES,
    all_frontends={"moe": get_moe_frontend},
    all_targets={"ssc": get_ssc_target},
)

"""What code is generated for: limits and capabilities, no vendor logic."""

from __future__ import annotations

import enum
import platform

from octants.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Blocks:
    """What a machine has for work items that work together.

    A block has `block_dim` of them where a kernel does not say how many, and `most_items` at most;
    `subgroup_size` of them run in step. The arrays that they share take `shared_bytes` at most.
    """

    subgroup_size: int = 32
    block_dim: int = 128
    most_items: int = 1024
    shared_bytes: int = 48 * 1024


@dataclass(frozen=True, slots=True)
class Target:
    """A machine that kernels are compiled for.

    `features` is the comma-separated list of the CPU's features for LLVM. `blocks` is what there is
    for work items that work together.
    """

    arch: str
    triple: str = ""
    cpu: str = ""
    features: str = ""
    has_f64: bool = True
    has_i64: bool = True
    blocks: Blocks | None = None


class Arch(enum.Enum):
    """What kernels can run on; `python` is the interpreter."""

    x64 = "x64"
    arm64 = "arm64"
    cuda = "cuda"
    vulkan = "vulkan"
    metal = "metal"
    amdgpu = "amdgpu"
    python = "python"


class Extension(enum.Enum):
    """What an arch may be able to do."""

    sparse = "sparse"
    quant = "quant"
    mesh = "mesh"
    quant_basic = "quant_basic"
    data64 = "data64"  # f64 and i64
    adstack = "adstack"  # gradients through loops with any trip count
    bls = "bls"  # block-local storage
    assertion = "assertion"  # asserts and bounds checks in kernels
    extfunc = "extfunc"


HOST = Arch.arm64 if platform.machine().lower() in ("arm64", "aarch64") else Arch.x64
GPUS = (Arch.cuda, Arch.metal, Arch.vulkan, Arch.amdgpu)
"""In the order in which ``arch=gpu`` tries them."""

_EVERYWHERE = frozenset((Extension.data64, Extension.adstack, Extension.assertion))
EXTENSIONS: dict[Arch, frozenset[Extension]] = dict.fromkeys(Arch, _EVERYWHERE)

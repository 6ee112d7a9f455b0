"""Descriptions of the machines that code is generated for: limits and capabilities."""

from __future__ import annotations

import enum
import platform

from octants.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Blocks:
    """The limits of a machine for work items that work together.

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
    blocks: Blocks | None = None

    def names(self) -> frozenset[str]:
        """The features, without those that work on 64-bit integers where there are none."""
        found = frozenset(self.features.split(","))
        return found if "int64" in found else found - {"atomic64", "shared64"}


def code_model(triple: str) -> str:
    """LLVM's code model for machine code that this process loads.

    On Windows, JITLink makes no stubs for functions that are more than 2 GB away, as those of
    libraries are: only the large model calls them by 64-bit addresses.
    """
    return "large" if triple.startswith("x86_64") and "windows" in triple else "default"


AUTO, ALWAYS, NEVER = "auto", "always", "never"
"""The values of the option `simd`: lanes where they pay, wherever they can be, or nowhere."""

MOST_VECTORS = 4
"""The vectors of the widest tiles."""


@dataclass(frozen=True, slots=True)
class LaneCosts:
    """The costs of lanes besides instructions on vectors, in additions of registers.

    A lane that calls a function on its own takes `call` besides it. To find out how much of a row
    is left takes `new_tile`. A load from addresses that are no neighbours takes `gathered` a lane,
    a store `scattered`, and an addition, three times, `added`. A product of integers of 64 bits
    takes `product_of_64` for each vector.
    """

    call: float
    new_tile: float
    gathered: float
    scattered: float
    added: float
    product_of_64: float


@dataclass(frozen=True, slots=True)
class Vectors:
    """The inputs, besides its code, that decide whether a task runs in the lanes of vectors.

    A vector has so many `lanes` of 32 bits, 0 where it cannot rely on vectors. `simd` says
    whether they are wanted: one of `AUTO`, `ALWAYS` and `NEVER`. Lanes can do the `operations` of
    these names. That is a tuple, since the text of this is part of the cache's keys.
    """

    lanes: int
    simd: str
    operations: tuple[str, ...]
    costs: LaneCosts


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The abilities of a machine and the demands on code that passes and autodiff query.

    A backend gives it for a device and the options in force. Of the machine: where `contracts`, a
    product and a sum may be rounded as one, and what is divided be multiplied by a reciprocal;
    where it `fuses`, an `fma` is rounded once, whatever the device.
    Where it `serialises_blocks`, work items that work together run one after the other. `fills` is
    how many work items a GPU needs to be busy; 0 on CPUs, which are so with few. Where it `splits`,
    lanes of a subgroup may share a work item. `blocks` is what there is for work items that work
    together; None where they cannot. Work items may run in the lanes of `vectors`; None where each
    has a thread. `updates_64_bits` says that they can update integers of 64
    bits in memory atomically.

    Where it `groups_sums`, the threads of a subgroup, or the lanes of vectors, combine their
    updates of several elements. With `exchanges_factors` they exchange the factors of products.
    Blocks of records that it `unrolls` are written by the passes, since the compiler of its driver
    does not unroll them. It estimates sines and cosines of small angles in the time of
    `estimate_sums` additions; 0 if it does not. Where it `approximates_quotients`, quotients of f32
    may be so. Where it `allots_registers`, code says how many its threads may use. Where it
    `keeps_calls`, its compiler does not inline functions that code generation leaves out of line.
    Vectors of a work item that are indexed at run time take up to `vector_bytes` of memory.

    Of the record buffer: arrays, record buffers and their copies share `memory_bytes`. `workers`
    divide the bytes for record buffers, and up to `record_buffer_sharers` work items share the
    record buffer of a worker. Loops that surely take no more than `whole_record_bytes` bytes of it
    are never recorded in blocks. A block of a loop may take `local_record_bytes` bytes of the
    memory near a work item; 0: there is none. Loops that are recorded without blocks, because they
    are around others or in others, may take more: usual bytes, times `nested_records`. `capacity`
    is that of records, if it is forced; `nests` says how loops in loops are recorded, as
    `autodiff.reverse` takes it.

    Of the code: it `checks_bounds` of accesses, and that what it stores is finite, where it
    `checks_finite`; where `deterministic`, it updates arrays in an order that is always the same.
    """

    contracts: bool = False
    fuses: bool = False
    serialises_blocks: bool = False
    fills: int = 0
    splits: bool = False
    blocks: Blocks | None = None
    vectors: Vectors | None = None
    updates_64_bits: bool = True
    unrolls: bool = False
    groups_sums: bool = False
    exchanges_factors: bool = False
    estimate_sums: int = 0
    approximates_quotients: bool = False
    allots_registers: bool = False
    keeps_calls: bool = False
    vector_bytes: int = 1 << 14
    memory_bytes: int = 0
    workers: int = 1
    record_buffer_sharers: int = 1
    whole_record_bytes: int = 0
    local_record_bytes: int = 0
    nested_records: int = 1
    capacity: int = 0
    nests: str = "auto"
    checks_bounds: bool = False
    checks_finite: bool = False
    deterministic: bool = False


class Arch(enum.Enum):
    """The kinds of machines that kernels run on; `python` is the interpreter."""

    x64 = "x64"
    arm64 = "arm64"
    cuda = "cuda"
    vulkan = "vulkan"
    metal = "metal"
    amdgpu = "amdgpu"
    python = "python"


class Extension(enum.Enum):
    """The abilities that not every arch has."""

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
GPUS = (Arch.cuda, Arch.amdgpu, Arch.metal, Arch.vulkan)
"""In the order in which ``arch=gpu`` tries them."""

_EVERYWHERE = frozenset(
    (
        Extension.data64,
        Extension.adstack,
        Extension.assertion,
        Extension.quant,
        Extension.quant_basic,
        Extension.sparse,
    )
)
EXTENSIONS: dict[Arch, frozenset[Extension]] = dict.fromkeys(Arch, _EVERYWHERE)

"""Write loads and stores of lanes: of one address, of neighbours at once, or lane by lane.

The indices of an access determine whether all lanes have one address, addresses at a known
distance, or any.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from octants.codegen.llvm import memory_formats
from octants.codegen.llvm import types_and_literals as names
from octants.codegen.llvm.lanes.function_text import LaneText, ProbableLine
from octants.codegen.memory import Offset, add_indices
from octants.ir import ops
from octants.ir.core import Array, Companion, Space, Value
from octants.lazy_dataclass import dataclass

_GATHERING = 512
"""The size of vectors that a machine surely gathers by instructions under a mask."""


@dataclass(frozen=True, slots=True)
class LaneAddress:
    """The addresses that lanes access: from ``start``, ``step`` bytes from lane to lane.

    Without a known step `start` is a vector of addresses, and `step` is None. Then `probable` may
    say what they are if no lane is at a boundary.
    """

    start: str
    step: int | None
    probable: ProbableAddress | None = None


@dataclass(frozen=True, slots=True)
class ProbableAddress:
    """The addresses at ``base`` plus ``stride`` bytes for each unit of ``index``, if that is a
    ``line``.
    """

    base: str
    index: str
    stride: int
    line: ProbableLine

    @property
    def step(self) -> int:
        """The bytes from lane to lane."""
        return self.line.step * self.stride


class LaneOffset(Offset):
    """An offset as the sum of a number, a step from lane to lane, and a vector."""

    def __init__(self, f: LaneText) -> None:
        super().__init__(f)
        self._lanes = f
        self._step = 0
        self._vectors: list[tuple[str, int]] = []

    def add(self, index: str, stride: int) -> None:
        line = self._lanes.line(index)
        if line is None:
            self._vectors.append((index, stride))
            return
        self._step += line.step * stride
        super().add(line.start, stride)

    def add_unknown(self, index: str, stride: str) -> None:
        line = self._lanes.line(index)
        if line is None or line.step:
            self._vectors.append((self._lanes.apply("mul", "i64", index, stride), 1))
        else:
            super().add_unknown(line.start, stride)

    def add_of_lane(self, index: str, size: int) -> None:
        """Add ``index`` in an array with an element of each lane side by side."""
        self.add(index, size * self._lanes.lanes)
        self._step += size

    def addresses(self, base: str) -> LaneAddress:
        """Return the addresses at this offset from ``base``."""
        f, start = self._lanes, self.apply(base)
        if not self._vectors:
            return LaneAddress(start, self._step)
        probable = self._probable(start)
        if self._step:
            numbers = ", ".join(f"i64 {k * self._step}" for k in range(f.lanes))
            start = self._behind(start, "i8", f"<{numbers}>")
        for index, stride in self._vectors:
            if stride in (1, 2, 4, 8):
                start = self._behind(start, f"i{8 * stride}", index)
            else:
                start = self._behind(start, "i8", f.apply("mul", "i64", index, stride))
        return LaneAddress(start, None, probable)

    def _probable(self, base: str) -> ProbableAddress | None:
        """Return the addresses if the only varying index is probably linear."""
        if len(self._vectors) != 1 or self._step:
            return None
        ((index, stride),) = self._vectors
        line = self._lanes.probable.get(index)
        return None if line is None else ProbableAddress(base, index, stride, line)

    def _behind(self, start: str, unit: str, index: str) -> str:
        f = self._lanes
        pointer = f"{f.vector('ptr') if f.is_vector(start) else 'ptr'} {start}"
        return f.assign_vector(f"getelementptr {unit}, {pointer}, {f.vector('i64')} {index}")

    def _moved(self, base: str, nbytes: str) -> str:
        return self._lanes.assign(f"getelementptr i8, ptr {base}, i64 {nbytes}")


def locate(
    f: LaneText, array: Array, companion: Companion, indices: Sequence[Value]
) -> LaneAddress:
    """Return the addresses of an array element for all lanes."""
    offset = LaneOffset(f)
    if array.space is Space.LOCAL:
        (index,) = indices
        offset.add_of_lane(f.index(index), array.dtype.size)
        return offset.addresses(f.pointer(array, companion))
    return offset.addresses(add_indices(f, offset, array, companion, indices))


def addresses(f: LaneText, address: LaneAddress) -> str:
    """Return the addresses as a vector."""
    if address.step is None:
        return address.start
    if address.step == 0:
        return f.spread("ptr", address.start)
    numbers = ", ".join(f"i64 {k * address.step}" for k in range(f.lanes))
    return f.assign_vector(f"getelementptr i8, ptr {address.start}, {f.vector('i64')} <{numbers}>")


# -- as instructions ----------------------------------------------------------------------------


def _suffix(f: LaneText, type: str) -> str:
    return f"v{f.lanes}{ {'half': 'f16'}.get(type, names.suffix(type)) }"


def load_from(
    f: LaneText, address: LaneAddress, type: str, align: int, suffix: str, *, private: bool = False
) -> str:
    """Load for the active lanes; the result is one number if all have one address.

    Where each lane has an element of its own (``private``), all lanes load, which needs no mask.
    """
    vector, mask = f.vector(type), f.vector("i1")
    if address.step == 0:
        return f.assign(f"load {type}, ptr {address.start}, align {align}{suffix}")
    if address.step == align and (private or f.mask is None):
        return f.assign_vector(f"load {vector}, ptr {address.start}, align {align}{suffix}")
    if address.step == align:
        name = f"@llvm.masked.load.{_suffix(f, type)}.p0"
        f.text.declare(name, vector, f"ptr, i32, {mask}, {vector}")
        return f.assign_vector(
            f"call {vector} {name}(ptr {address.start}, i32 {align}, {mask} {f.lanes_of(f.mask)},"
            f" {vector} zeroinitializer){suffix}"
        )
    if address.probable is not None and address.probable.step == align:
        return _load_contiguous_or_gather(f, address, address.probable, type, align, suffix)
    name = f"@llvm.masked.gather.{_suffix(f, type)}.v{f.lanes}p0"
    pointers, active, start = f.vector("ptr"), f.mask, addresses(f, address)
    if active is not None and active == f.tile_mask and _loads_one_by_one(f):
        first = f.element("ptr", start, f.first_of_tile())
        start, active = f.choose(active, "ptr", start, first), None
    f.text.declare(name, vector, f"{pointers}, i32, {mask}, {vector}")
    return f.assign_vector(
        f"call {vector} {name}({pointers} {start}, i32 {align},"
        f" {mask} {f.lanes_of(active)}, {vector} zeroinitializer){suffix}"
    )


def _loads_one_by_one(f: LaneText) -> bool:
    """Whether lanes without a work item load what the first lane does, which has one.

    Where LLVM makes a gather of loads, each would be a branch otherwise: a kernel with eight of
    them took three times as long to compile. Outside of loops the time of a run counts more.
    """
    return f.machine.vector_bits < _GATHERING and not f.is_outside_loops


def if_contiguous(
    f: LaneText,
    address: LaneAddress,
    probable: ProbableAddress,
    near: Callable[[LaneAddress], None],
    far: Callable[[LaneAddress], None],
) -> None:
    """Test whether lanes access neighbours, as they do but at boundaries, and write both versions.

    Args:
        f: The function.
        address: The addresses.
        probable: What they probably are, if they have no known step.
        near: Writes the access to neighbours, which takes a fraction of the time.
        far: Writes the access to any addresses.
    """
    first = probable.line.start()
    numbers = ", ".join(f"i64 {k * probable.line.step}" for k in range(f.lanes))
    wide = f.vector("i64")
    line = f.assign_vector(f"add {wide} {f.spread('i64', first)}, <{numbers}>")
    differs = f.assign_vector(f"icmp ne {wide} {probable.index}, {line}")
    nbytes = f.apply("mul", "i64", first, probable.stride)
    start = f.assign(f"getelementptr i8, ptr {probable.base}, i64 {nbytes}")
    labels = [f.fresh_label(name) for name in ("contiguous", "scattered", "further")]
    f.branch_if(f.any(f.both(differs, f.mask) or differs), labels[1], labels[0], unlikely=True)
    f.start(labels[0])
    near(LaneAddress(start, probable.step))
    f.branch(labels[2])
    f.start(labels[1])
    far(LaneAddress(address.start, None))
    f.enter(labels[2])


def _load_contiguous_or_gather(
    f: LaneText,
    address: LaneAddress,
    probable: ProbableAddress,
    type: str,
    align: int,
    suffix: str,
) -> str:
    """Load neighbours at once if the lanes access neighbours, and gather otherwise."""
    loaded: list[tuple[str, str]] = []

    def load_one(each: LaneAddress) -> None:
        loaded.append((load_from(f, each, type, align, suffix), f.label))

    if_contiguous(f, address, probable, load_one, load_one)
    return f.phi(f.vector(type), *loaded)


def store_to(
    f: LaneText,
    address: LaneAddress,
    type: str,
    value: str,
    align: int,
    suffix: str,
    *,
    private: bool = False,
) -> None:
    """Store for the active lanes; if several have one address, the last one's value stays.

    Where each lane has an element of its own (``private``), lanes without a work item may store.
    """
    vector, mask = f.vector(type), f.vector("i1")
    if address.step == 0:
        if f.is_vector(value):
            value = f.element(type, value, f.last_active())
        f.emit(f"store {type} {value}, ptr {address.start}, align {align}{suffix}")
        return
    value = f.spread(type, value)
    if address.step == align and (f.mask is None or (private and f.mask == f.tile_mask)):
        f.emit(f"store {vector} {value}, ptr {address.start}, align {align}{suffix}")
    elif address.step == align:
        name = f"@llvm.masked.store.{_suffix(f, type)}.p0"
        f.text.declare(name, "void", f"{vector}, ptr, i32, {mask}")
        f.emit(
            f"call void {name}({vector} {value}, ptr {address.start}, i32 {align},"
            f" {mask} {f.lanes_of(f.mask)}){suffix}"
        )
    else:
        name = f"@llvm.masked.scatter.{_suffix(f, type)}.v{f.lanes}p0"
        pointers = f.vector("ptr")
        f.text.declare(name, "void", f"{vector}, {pointers}, i32, {mask}")
        f.emit(
            f"call void {name}({vector} {value}, {pointers} {addresses(f, address)}, i32 {align},"
            f" {mask} {f.lanes_of(f.mask)}){suffix}"
        )


# -- operations ---------------------------------------------------------------------------------


def load(f: LaneText, op: ops.Load) -> None:
    """Load an element. Arguments are invariant, so that their loads may move."""
    dtype = op.array.dtype
    address = locate(f, op.array, op.companion, op.indices)
    suffix = f.kernel.scopes.suffix(op.ref)
    if op.array.space is Space.ARGUMENT and op.companion is Companion.PRIMAL:
        suffix = f", !invariant.load {f.text.empty}" if address.step == 0 else ""
    register, private = memory_formats.memory_type(f, dtype), op.array.space is Space.LOCAL
    stored = load_from(f, address, register, dtype.size, suffix, private=private)
    f.bind(op.result, memory_formats.from_memory(f, dtype, stored))


def store(f: LaneText, op: ops.Store) -> None:
    """Store an element."""
    dtype = op.array.dtype
    address = locate(f, op.array, op.companion, op.indices)
    stored = memory_formats.to_memory(f, dtype, f.use(op.value))
    suffix = f.kernel.scopes.suffix(op.ref)
    register, private = memory_formats.memory_type(f, dtype), op.array.space is Space.LOCAL
    store_to(f, address, register, stored, dtype.size, suffix, private=private)

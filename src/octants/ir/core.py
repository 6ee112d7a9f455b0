"""Values, blocks, operations and modules: structured SSA.

A `Module` is one kernel. As the frontend builds it, its `body` is one block in which serial
operations and `ParallelFor` stand side by side; after `passes.tasks.outline_tasks` it is a list of
`Task`s. Every block ends in a `Yield`. A value is defined once, by an operation or as an argument
of a block, before its uses; a region sees the values of the blocks around it.

Text form of an operation: ``%r: f32 = name<attributes>(operands) { regions }``.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from dataclasses import field
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar

from octants.diagnostics.span import InlinedCall, Span
from octants.functions_from_text import define
from octants.lazy_dataclass import dataclass
from octants.types.companions import Companion as Companion
from octants.types.layouts import Layout, Strided
from octants.types.scalars import DType

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:

    def dataclass_transform(**_: Any) -> Any:
        """Do nothing: only type checkers want to know that `operation` makes dataclasses."""
        return lambda decorator: decorator


class Space(enum.Enum):
    """The kind of memory that an array is in."""

    FIELD = "field"  # a field: its shape is part of its layout
    NDARRAY = "ndarray"  # its shape, and its strides if not row-major, are known at launch
    ARGUMENT = "argument"  # scalars passed by value: read-only
    TEMPORARY = "temporary"  # launch-temporary: values that cross tasks
    RETURN = "return"  # what the kernel returns
    SHARED = "shared"  # one for each block of work items, undefined at its start
    LOCAL = "local"  # one for each work item, undefined at its start


@dataclass(eq=False, slots=True)
class Array:
    """An array that a kernel names.

    `rank` counts its indices without those of the element; `element_shape` is () for a scalar, (n,)
    for a vector and (n, m) for a matrix. An access gives rank + len(element_shape) indices.
    `layouts` has an entry for each companion that exists; the value is None where the layout is the
    plain one (row-major, elements together), and `STRIDED` where only the launch knows it.
    A launch-temporary array may have one axis: as many elements as an axis of another, `like`.
    One of `Space.FIELD` that is `exported` may be the memory of ndarrays: it is an ndarray itself,
    which the kernel refers to by name, or a field whose memory other libraries were given.
    A section of a `partition` is no array of the module: it stands for another one in accesses.
    """

    name: str
    dtype: DType
    rank: int
    space: Space
    element_shape: tuple[int, ...] = ()
    layouts: dict[Companion, Layout | Strided | None] = field(default_factory=dict)
    like: tuple[Array, int] | None = None
    exported: bool = False
    partition: Partition | None = None

    @property
    def whole(self) -> Array:
        """The array itself; that of which a section is one."""
        return self if self.partition is None else self.partition.whole

    @property
    def fixed_shape(self) -> tuple[int, ...] | None:
        """The extents of the axes, where they are known when the kernel is compiled."""
        shapes = (layout.shape for layout in self.layouts.values() if isinstance(layout, Layout))
        return next(shapes, None)

    def has(self, companion: Companion) -> bool:
        return companion in self.layouts


@dataclass(eq=False, slots=True)
class Partition:
    """A division of an array into sections, no two of which share an element."""

    whole: Array


class ArrayRef(NamedTuple):
    """One memory that a kernel names: the primal of an array, or another companion of it."""

    array: Array
    companion: Companion

    @property
    def whole(self) -> ArrayRef:
        """The same companion of the whole array, if this is of a section."""
        return self if self.array.partition is None else ArrayRef(self.array.whole, self.companion)


CHECKPOINT, LOG, BYTES, REST = "checkpoint", "log", "bytes", "rest"
"""The names of records that are not of single iterations."""


@dataclass(eq=False, slots=True)
class Record:
    """The record of a loop: a slot for each carried value that its reverse needs, per iteration.

    Attributes:
        name: One of the names below, or that of a record of single iterations. `CHECKPOINT`: the
            values at the start of a block of iterations. `LOG`: the values that a task read before
            it overwrote them. `REST`: the iterations that are in no block. `BYTES`: nothing is
            pushed to it; it only measures.
        slots: The types of the values.
        location: The loop in the source.
        capacity: The number of iterations that it holds; 0: as many as there are.
        local: 0 if the iterations are in the record buffer. Otherwise they are in memory of the
            work item, which holds so many: those of one execution of the loop, or of one block.
        unrolled: The loops that push to it and pop from it have exactly `local` iterations, and
            code generation unrolls them, so that registers can hold it.
    """

    name: str
    slots: list[DType]
    location: Span | None = None
    capacity: int = 0
    local: int = 0
    unrolled: bool = False

    def copy(self) -> Record:
        """Another record with the same slots."""
        slots = list(self.slots)
        return Record(self.name, slots, self.location, self.capacity, self.local, self.unrolled)

    @property
    def stride(self) -> int:
        """The bytes that an iteration takes in the record buffer."""
        return 0 if self.local else self.offsets()[1]

    def offsets(self) -> tuple[list[int], int]:
        """Byte offset of each slot and the bytes of one iteration; slots are naturally aligned.

        Eight booleans share a byte, from its lowest bit on.
        """
        offsets, position, booleans = [], 0, 0
        for dtype in self.slots:
            if dtype.is_bool:
                if booleans % 8 == 0:
                    shared, position = position, position + 1
                booleans += 1
                offsets.append(shared)
                continue
            position = -(-position // dtype.size) * dtype.size
            offsets.append(position)
            position += dtype.size
        widest = max((dtype.size for dtype in self.slots), default=1)
        return offsets, -(-position // widest) * widest

    def members(self) -> dict[int, list[int]]:
        """The slots at each offset: one, or booleans."""
        found: dict[int, list[int]] = {}
        for slot, offset in enumerate(self.offsets()[0]):
            found.setdefault(offset, []).append(slot)
        return found


class Value:
    """An SSA value. `name` is a hint for the printer."""

    __slots__ = ("name", "type")

    def __init__(self, type: DType, name: str = "") -> None:
        self.type = type
        self.name = name

    def __repr__(self) -> str:
        return f"%{self.name or hex(id(self))[-4:]}: {self.type}"


@dataclass(eq=False, slots=True)
class Block:
    """Arguments and operations; the last operation is a `Yield`."""

    args: list[Value] = field(default_factory=list)
    ops: list[Operation] = field(default_factory=list)

    @property
    def yielded(self) -> list[Value]:
        """The operands of the block's `Yield`."""
        terminator: Any = self.ops[-1]
        values: list[Value] = terminator.values
        return values

    def walk(self) -> Iterator[Operation]:
        """Every operation, those of nested regions after the one that holds them."""
        pending: list[Iterator[Operation]] = [iter(self.ops)]
        while pending:
            for op in pending[-1]:
                yield op
                if op.REGIONS:
                    pending.extend(iter(region.ops) for region in reversed(op.regions))
                    break
            else:
                pending.pop()

    def used(self) -> set[Value]:
        """The values that its operations use, also in regions."""
        return {value for op in self.walk() for value in op.operands}

    def defined(self) -> set[Value]:
        """The values that it defines, also in regions: arguments of blocks, and results."""
        found = set(self.args)
        for op in self.walk():
            found.update(op.results)
            for region in op.regions:
                found.update(region.args)
        return found


def operand() -> Any:
    """A field that holds one value."""
    return field(metadata={"role": "operand"})


def operands() -> Any:
    """A field that holds a list of values; at most one per operation, after the single ones."""
    return field(metadata={"role": "operands"})


def attribute(default: Any = ...) -> Any:
    """A field that is known at compile time."""
    if default is ...:
        return field(metadata={"role": "attribute"})
    return field(metadata={"role": "attribute"}, default=default)


def region() -> Any:
    """A field that holds a block."""
    return field(metadata={"role": "region"})


@dataclass(eq=False, slots=True)
class Operation:
    """The base of all operations; `results` are the values that it defines.

    A class says by its traits what passes and analyses need to know of it, so that none of them
    has to list classes. They are False where a class does not set them.
    """

    NAME: ClassVar[str] = ""
    OPERANDS: ClassVar[tuple[str, ...]] = ()
    VARIADIC: ClassVar[str | None] = None
    ATTRIBUTES: ClassVar[tuple[str, ...]] = ()
    REGIONS: ClassVar[tuple[str, ...]] = ()

    reads: ClassVar[bool] = False
    """It reads an element of an array; it is a `memory.Access`."""
    writes: ClassVar[bool] = False
    """It writes an element of an array; it is a `memory.Write`."""
    reports: ClassVar[bool] = False
    """It reports something to the host: a message, a failure."""
    orders_memory: ClassVar[bool] = False
    """Behind it, what other work items have written before may be seen."""
    is_convergent: ClassVar[bool] = False
    """Work items come to it together, so that it may not be moved into or out of a branch."""
    has_effects: ClassVar[bool] = False
    """It must stay, even if nothing uses its results."""
    is_pure: ClassVar[bool] = False
    """Its results depend on its operands and attributes alone."""
    is_scalar: ClassVar[bool] = False
    """It makes scalars of scalars: as `is_pure`, but its results may depend on the launch, too."""
    is_speculatable: ClassVar[bool] = False
    """It may be run where the program does not come to it, if the indices of loads are checked."""
    is_costly: ClassVar[bool] = False
    """It pays to run it once before a loop, even if the loop may not come to it."""
    is_varying: ClassVar[bool] = False
    """Its results may differ from one work item to another, whatever its operands are."""
    is_tied: ClassVar[bool] = False
    """Only its own work item can run it: it uses its record buffer, or the number of the item."""

    results: list[Value] = field(default_factory=list, kw_only=True)
    location: Span | None = field(default=None, kw_only=True)

    @property
    def result(self) -> Value:
        """The only result."""
        (value,) = self.results
        return value

    @property
    def operands(self) -> list[Value]:
        """All operands, the variadic ones last."""
        raise NotImplementedError

    @property
    def attributes(self) -> list[Any]:
        raise NotImplementedError

    @property
    def regions(self) -> list[Block]:
        raise NotImplementedError

    def walk(self) -> Iterator[Operation]:
        """The operation, and those of its regions after it."""
        return Block([], [self]).walk()

    def walk_regions(self) -> Iterator[Operation]:
        """The operations of its regions, and of the regions of these."""
        for region in self.regions:
            yield from region.walk()

    def verify(self) -> None:
        """Raise `InvalidIR` if the operation is not well formed by itself."""


class InvalidIR(Exception):
    """An operation or a module that is not well formed: a bug in the compiler, never the user's."""


OPERATIONS: dict[str, type[Operation]] = {}

_Op = TypeVar("_Op", bound=Operation)


@dataclass_transform(field_specifiers=(attribute, operand, operands, region, field))
def operation(name: str) -> Callable[[type[_Op]], type[_Op]]:
    """Make a class an operation called ``name`` in the text form."""

    def register(declared: type[_Op]) -> type[_Op]:
        cls = dataclass(eq=False, slots=True)(declared)
        by_role: dict[str, list[str]] = {}
        for entry in cls.__dataclass_fields__.values():
            by_role.setdefault(entry.metadata.get("role", ""), []).append(entry.name)
        cls.NAME = name
        cls.OPERANDS = tuple(by_role.get("operand", ()))
        cls.VARIADIC = next(iter(by_role.get("operands", ())), None)
        cls.ATTRIBUTES = tuple(by_role.get("attribute", ()))
        cls.REGIONS = tuple(by_role.get("region", ()))
        _write_out(cls)
        OPERATIONS[name] = cls
        return cls

    return register


def _write_out(cls: type[Operation]) -> None:
    """Give a class the properties that list its fields, as generated code that names them.

    Passes query these so often that looking the names up each time would take most of the time of
    some.
    """
    operands = [f"self.{name}" for name in cls.OPERANDS]
    if cls.VARIADIC is not None:
        operands.append(f"*self.{cls.VARIADIC}")
    lists = {
        "operands": operands,
        "attributes": [f"self.{name}" for name in cls.ATTRIBUTES],
        "regions": [f"self.{name}" for name in cls.REGIONS],
    }
    for name, entries in lists.items():
        getter = eval(f"lambda self: [{', '.join(entries)}]")
        setattr(cls, name, property(getter, doc=getattr(Operation, name).__doc__))


def rebuild(
    op: Operation,
    operands: list[Value],
    regions: list[Block] | None = None,
    results: list[Value] | None = None,
) -> Operation:
    """A copy of ``op`` with other operands and regions, and fresh results unless given."""
    if results is None:
        results = [Value(value.type, value.name) for value in op.results]
    kind = type(op)
    make = _REBUILDERS.get(kind)
    if make is None:
        make = _REBUILDERS[kind] = _rebuilder(kind)
    return make(op, operands, op.regions if regions is None else regions, results)


_Rebuilder = Callable[[Operation, list[Value], list[Block], list[Value]], Operation]
_REBUILDERS: dict[type[Operation], _Rebuilder] = {}


def _rebuilder(kind: type[Operation]) -> _Rebuilder:
    """Generate `rebuild` for a class, as code that names its fields: it runs often."""
    variadic = [] if kind.VARIADIC is None else [kind.VARIADIC]
    names = [*kind.OPERANDS, *variadic, *kind.REGIONS]
    fields = [f"{name}=_{name}" for name in names]
    fields += [f"{name}=op.{name}" for name in kind.ATTRIBUTES]
    values = [*(f"_{name}" for name in kind.OPERANDS), *(f"*_{name}" for name in variadic)]
    lines = [
        "def rebuilt(op, operands, regions, results):",
        f"[{', '.join(values)}] = operands",
        f"[{', '.join(f'_{name}' for name in kind.REGIONS)}] = regions",
        f"return kind({', '.join([*fields, 'results=results', 'location=op.location'])})",
    ]
    return define("rebuilt", "\n    ".join(lines), {"kind": kind})


def replace_operands(op: Operation, resolve: Callable[[Value], Value]) -> None:
    """Have each operand be what ``resolve`` gives for it, in place."""
    for name in op.OPERANDS:
        setattr(op, name, resolve(getattr(op, name)))
    if op.VARIADIC is not None:
        setattr(op, op.VARIADIC, [resolve(value) for value in getattr(op, op.VARIADIC)])


@dataclass(eq=False, slots=True)
class Task:
    """A unit of launching: a parallel loop, or a serial stretch (`domain` is None).

    The domain block of a parallel task runs once per launch and yields (lower, upper); the argument
    of the body is the index of the work item. The body of a serial task has no arguments.
    """

    name: str
    body: Block
    domain: Block | None = None
    location: Span | None = None
    options: dict[str, Any] = field(default_factory=dict)  # from loop_config

    @property
    def is_parallel(self) -> bool:
        return self.domain is not None


@dataclass(eq=False, slots=True)
class Module:
    """A kernel: the arrays that it names, and its code as one body or as tasks.

    Of one that is `noalias`, no two arrays, nor their companions, share memory in any launch.
    `calls` are those that the frontend inlined, for reports; modules made of it have none.
    """

    name: str
    arrays: list[Array] = field(default_factory=list)
    body: Block | None = None
    tasks: list[Task] = field(default_factory=list)
    location: Span | None = None
    noalias: bool = False
    calls: tuple[InlinedCall, ...] = ()

    @property
    def kernel(self) -> str:
        """The name of the user's function that this is, or a derivative or a part of it."""
        given = self.location.function if self.location is not None else ""
        return given or self.name

    def blocks(self) -> Iterator[Block]:
        """The outermost blocks: the body, or the domains and bodies of the tasks in order."""
        if self.body is not None:
            yield self.body
        for task in self.tasks:
            if task.domain is not None:
                yield task.domain
            yield task.body

    def walk(self) -> Iterator[Operation]:
        for block in self.blocks():
            yield from block.walk()

    def size(self) -> int:
        """How many operations there are."""
        return sum(1 for _ in self.walk())

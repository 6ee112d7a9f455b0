"""The signature that a kernel is specialised for, and the sources of its arrays."""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from octants.cached_property import cached_property
from octants.diagnostics.exceptions import InternalError
from octants.internal_members import internal
from octants.lazy_dataclass import dataclass
from octants.types.companions import Companion
from octants.types.layouts import Layout
from octants.types.quantised_types import Packing
from octants.types.scalars import DType
from octants.types.sparsity import Sparsity


class FieldHandle(ABC):
    """The part of a field that the frontend needs. One handle is one `Array` of the kernel.

    A field of vectors or matrices is one handle; a struct field is a mapping of handles that the
    frontend sees as a struct.
    """

    dtype: DType
    shape: tuple[int, ...]
    element_shape: tuple[int, ...]
    name: str = ""
    offset: tuple[int, ...] = ()
    """The index of the first element, one number per axis; () stands for zeros. A kernel takes it
    off an index before anything else, and adds it to the indices of a loop over the field."""
    companion: Companion = Companion.PRIMAL
    """The companion of its `primal` that it is: for ``x.grad``, the adjoint of ``x``."""

    @property
    @abstractmethod
    def device(self) -> int:
        """The number of the device that the memory is on."""

    @property
    def sparsity(self) -> Sparsity | None:
        """The sparse blocks that the elements lie in; None if all blocks are dense."""
        return None

    @property
    def primal(self) -> FieldHandle:
        """The field whose companion this is; itself if it is none."""
        return self

    @property
    @internal
    def is_exported(self) -> bool:
        """Whether other libraries were given the memory, which may come back as an ndarray."""
        return False

    @abstractmethod
    def layouts(self) -> Mapping[Companion, Layout]:
        """The layout of every companion that exists; allocates the field if it is not yet."""

    @abstractmethod
    def address(self, companion: Companion) -> int:
        """The address of the first element, a launch parameter."""


class StructHandle(ABC):
    """A field of structs: a handle for each member, by its name. It has no memory of its own."""

    members: Mapping[str, FieldHandle | StructHandle]
    shape: tuple[int, ...]
    python_type: Any  # the `structs.StructType` of an element


class QuantHandle(ABC):
    """A quantised field: numbers that are packed in words, which are a field of their own.

    It has the attributes of a `FieldHandle` but for layouts and addresses. `packing` says what is
    in a word, and `slots` which of it the components of an element are, row by row. Along an axis,
    `inner` elements share a word: 1, or more in a ``quant_array``. The words have those axes whose
    numbers are in `word_axes`.
    """

    dtype: DType
    shape: tuple[int, ...]
    element_shape: tuple[int, ...]
    name: str = ""
    offset: tuple[int, ...] = ()
    slots: tuple[int, ...]

    @property
    @abstractmethod
    def is_placed(self) -> bool:
        """Whether there are words; without them the rest is unknown."""

    @property
    @abstractmethod
    def words(self) -> FieldHandle:
        """The field of the words; an error if the field is not placed."""

    @property
    @abstractmethod
    def packing(self) -> Packing:
        """The packing of a word."""

    @property
    @abstractmethod
    def inner(self) -> tuple[int, ...]:
        """How many elements share a word, for each axis."""

    @property
    @abstractmethod
    def word_axes(self) -> tuple[int, ...]:
        """The axes of the field that its words have, too."""


@dataclass(frozen=True, slots=True)
class ScalarType:
    """An argument or return value passed by value: a scalar, or a vector or matrix of one dtype."""

    dtype: DType
    element_shape: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class NdarrayType:
    """An array argument: `rank` axes of elements of `element_shape`.

    It is row-major, or else has strides that a launch tells, as do its companions. If it is
    `clamped`, indices beyond its extents stand for the nearest element.
    """

    dtype: DType
    rank: int
    element_shape: tuple[int, ...] = ()
    companions: tuple[Companion, ...] = (Companion.PRIMAL,)
    strided: bool = False
    clamped: bool = False


@dataclass(frozen=True, slots=True)
class TemplateValue:
    """An argument known at compile time: any Python value, compared by identity or equality."""

    value: Any


@dataclass(frozen=True, slots=True)
class StructArgument:
    """A struct of arguments (a dataclass of arrays and scalars): members by name."""

    members: tuple[tuple[str, ArgumentType], ...]
    python_type: Any = None


_NUMBER_OF_TYPE: dict[tuple[NdarrayType, int, bool], int] = {}


class NdarrayHandle(ABC):
    """The part of an ndarray of Octants that a launch needs; `argument_type` never changes.

    One that a kernel finds as a global or an attribute is to it what a field is: it has the same
    attributes as a `FieldHandle`.
    """

    dtype: DType
    shape: tuple[int, ...]
    element_shape: tuple[int, ...]
    name: str = ""
    offset: tuple[int, ...] = ()
    companion: Companion = Companion.PRIMAL
    argument_type: NdarrayType
    device = 0
    """The number of the device that the memory is on."""

    is_read_only = False
    sparsity: Sparsity | None = None
    head: bytes
    """The extents and the address of the first element as a parameter block has them, 8 bytes each.
    The attribute is gone where the array can no longer be used."""

    @cached_property
    @internal
    def argument_key(self) -> int:
        """A number that stands for `argument_type`, `device`, and whether it can be written."""
        key = self.argument_type, self.device, self.is_read_only
        return _NUMBER_OF_TYPE.setdefault(key, len(_NUMBER_OF_TYPE))

    @property
    def primal(self) -> NdarrayHandle:
        """The array whose companion this is; itself if it is none."""
        return self

    @property
    @internal
    def is_exported(self) -> bool:
        """Whether other arrays may have the same memory."""
        return True

    @abstractmethod
    def layouts(self) -> Mapping[Companion, Layout]:
        """The layout of every companion that exists."""

    @abstractmethod
    def address(self, companion: Companion) -> int:
        """The address of the first element; an error where the array is of an earlier `init`."""


ArgumentType = ScalarType | NdarrayType | TemplateValue | StructArgument
ReturnType = ScalarType | StructArgument


def scalars_of(kind: Any) -> list[ScalarType]:
    """The scalars, vectors and matrices of a `ReturnType`, in the order of the members."""
    if isinstance(kind, StructArgument):
        return [scalar for _, member in kind.members for scalar in scalars_of(member)]
    return [kind]


class FieldSource:
    """The array is a field, found in a closure, a global, an attribute or a template argument.

    It may be an ndarray that was found in one of the first three. It does not keep the array alive:
    who launches a kernel again has to (`Specialisation.holding`).
    """

    __slots__ = ("reference",)

    def __init__(self, field: FieldHandle | NdarrayHandle) -> None:
        self.reference = weakref.ref(field)

    @property
    def field(self) -> FieldHandle | NdarrayHandle:
        """The array, which must exist."""
        found = self.reference()
        if found is None:
            raise InternalError("a kernel is used whose array is gone")
        return found

    def __reduce__(self) -> tuple[Any, ...]:
        return FieldSource, (self.field,)


@dataclass(frozen=True, slots=True)
class ArgumentSource:
    """The array is argument `position`; `path` names the members to follow in a struct."""

    position: int
    path: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TemporarySource:
    """The array is launch-temporary: zero at the start of each launch.

    Without ``is_zeroed``, it need not be: the kernel writes elements before it reads them.
    """

    is_zeroed: bool = True


@dataclass(frozen=True, slots=True)
class ReturnSource:
    """The array holds return value number `position`."""

    position: int = 0


@dataclass(frozen=True, slots=True)
class SharedSource:
    """Each block of work items has an array of its own, which no launch gives."""


ArraySource = FieldSource | ArgumentSource | TemporarySource | ReturnSource | SharedSource

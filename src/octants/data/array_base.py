"""The common base of fields and ndarrays: how the host reads and writes them."""

from __future__ import annotations

import itertools
import math
import operator
from abc import ABCMeta, abstractmethod
from collections.abc import Callable, Hashable, Iterator
from typing import TYPE_CHECKING, Any, Generic, overload

import numpy as np

from octants.data import current_runtime, host_access_events, torch_and_dlpack_conversion
from octants.data.companion_assignment import refuses_assignment
from octants.data.element_proxies import make_element
from octants.data.errors import (
    IS_KERNEL_MISSING,
    CannotCopy,
    CannotShare,
    IndexOutOfRange,
    NotIterable,
    NotOneNumber,
    ReadOnly,
    UsedAfterReset,
    WrongArray,
    WrongIndex,
    WrongNumberOfIndices,
    describe,
)
from octants.data.host_element_access import ElementRange, HostWindow
from octants.data.host_value_conversion import (
    check_shape,
    convert_array,
    convert_element,
    convert_stored,
    is_ready,
)
from octants.data.tape_array_protocol import StoredArray
from octants.deferred_import import Deferred
from octants.diagnostics.errors import UserError
from octants.diagnostics.exceptions import OctantsError
from octants.diagnostics.tracebacks import of_users, shortens_tracebacks
from octants.internal_members import internal
from octants.runtime.device import Device
from octants.types.companions import Companion
from octants.types.default_types import resolve
from octants.types.masked_arrays import refuse_masked
from octants.types.matrix_values import Matrix
from octants.types.parameter_annotations import AnyTensor
from octants.types.scalars import DType

if TYPE_CHECKING:
    from typing_extensions import Self, TypeVar

    from octants.data import dlpack_export, host_slices

    E = TypeVar("E", default=Any)
else:
    from typing import TypeVar

    E = TypeVar("E")
    dlpack_export = Deferred("octants.data.dlpack_export")
    host_slices = Deferred("octants.data.host_slices")

Array = np.ndarray[Any, Any]

_identities = itertools.count(1)
take_array_number = _identities.__next__
"""A number that is larger than the `octants_number` of all arrays so far."""
_SLICES = frozenset((slice, tuple, type(...)))  # the types of an index that may contain slices
_SHOWN = 1 << 20  # elements of an array whose values `repr` reads


class _TensorClass(ABCMeta):
    """``Tensor(x)`` of a field or an ndarray is `x`; their own classes make new ones."""

    def __call__(cls, *args: Any, **named: Any) -> Any:
        make: Any = super().__call__ if cls is not Tensor else wrap
        return make(*args, **named)


@refuses_assignment
class Tensor(StoredArray, AnyTensor, Generic[E], metaclass=_TensorClass):
    """A field or an ndarray: an array that kernels and the host share.

    `shape` counts elements, which are scalars, or vectors or matrices of `element_shape`. The host
    reads and writes elements by ``x[i, j]`` (``x[None]`` where there are no axes) and components by
    ``x[i][k]``; all at once by `to_numpy`, `from_numpy`, `fill` and `copy_from`. A slice, such as
    ``x[1:3]``, is a copy that cannot be written; ``x[1:3] = values`` writes its elements. As the
    annotation of a parameter it takes arrays of either kind.

    Attributes:
        dtype: the scalar type of the numbers.
        shape: the extent of each axis; () for a single element.
        element_shape: () for numbers, (n,) for vectors, (n, m) for matrices.
        name: the name in messages.
        offset: the index of the first element, if it is not 0 on each axis.
    """

    dtype: DType
    shape: tuple[int, ...]
    element_shape: tuple[int, ...]
    name: str = ""
    offset: tuple[int, ...] = ()
    layout: tuple[int, ...] | None = None
    """The order of the axes in memory, where `tensor` was asked for another than row-major."""

    is_read_only = False
    """Whether the memory is that of another library, which does not want it to be written."""

    device: int
    """The number of the device that the memory is on, as `init` counts them."""

    _kind = "tensor"
    _is_sparse = False  # of a field that has memory: whether it is in sparse blocks
    _opened: HostWindow | None = None
    _end: Callable[[str], UserError] | None = None
    _tensor: Any = None  # torch's view of the memory, once it was asked for
    _exported: Any = None  # notifies the device of the end, once the address was exported
    octants_number: int
    """A number that no other array has; the name is one that no object of a program has."""

    explicit_identity: int | None
    """The `identity` of a primal that only launches and announced writes change, and that shares
    memory with no other array; None once the memory was exported, and for companions."""

    def __init__(self) -> None:
        self.octants_number = next(_identities)
        self.explicit_identity: int | None = self.octants_number

    # -- life -----------------------------------------------------------------------------------

    @internal
    def require_shareable(self) -> None:
        """An error if other libraries cannot get the memory itself; see `Field`."""

    def _device(self) -> Device:
        """The device that the memory is on."""
        return current_runtime.runtime().devices.at(self.device)

    @abstractmethod
    def _open(self) -> HostWindow:
        """The window on the elements; allocates them. Called once."""

    @internal
    def window(self) -> HostWindow:
        """The elements in memory; an error if they are there no longer."""
        return self._opened or self._reopen()

    def _reopen(self) -> HostWindow:
        self.require_alive()
        self._opened = self._open()
        current_runtime.note_change()
        return self._opened

    @property
    def is_allocated(self) -> bool:
        """Whether the array has memory; before its first use it may have none."""
        return self._opened is not None

    @internal
    def require_alive(self) -> None:
        """An error if the array was made before the last `init`, or destroyed."""
        if self._end is not None:
            raise self._end(self.describe()).at()

    @internal
    def retire(self, reason: Callable[[str], UserError] = UsedAfterReset) -> None:
        """Give up the memory; any later use is an error."""
        self._opened = self._tensor = self._exported = None
        self._end = self._end or reason
        current_runtime.note_change()

    @internal
    def describe(self) -> str:
        """The array in the words of a message."""
        return f"{self._kind} `{self.name}`" if self.name else f"{self._kind} of {self.dtype}"

    # -- companions -----------------------------------------------------------------------------

    @property
    def grad(self) -> Self | Any:
        """The array of the gradient; None if there is none.

        A field that was made without a shape can be given one by `place` until it is first used:
        till then this is an array without memory. `has_grad` reports whether it has any.
        """
        return self.companion_array(Companion.ADJOINT)

    @property
    def dual(self) -> Self | Any:
        """The array of the derivative of forward mode; None if there is none, as for `grad`."""
        return self.companion_array(Companion.TANGENT)

    @abstractmethod
    def has_grad(self) -> bool:
        """Whether there is memory for a gradient."""

    @abstractmethod
    def has_dual(self) -> bool:
        """Whether there is memory for a dual."""

    # -- as a collection ------------------------------------------------------------------------

    @property
    def size(self) -> int:
        """How many elements there are: numbers, vectors or matrices."""
        return math.prod(self.shape)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError(f"len() of {self.describe()}, which has no axes")
        return self.shape[0]

    def __bool__(self) -> bool:
        """True, whatever is in it: ``if x.grad:`` asks whether there is one."""
        return True

    def __iter__(self) -> Iterator[Any]:
        return (self[index] for index in self.host_indices())

    @internal
    def host_indices(self) -> range:
        """The indices of the only axis; an error if there is not exactly one."""
        if len(self.shape) != 1:
            raise NotIterable(self.describe(), len(self.shape)).at()
        first = self.offset[0] if self.offset else 0
        return range(first, first + self.shape[0])

    @shortens_tracebacks
    def item(self) -> Any:
        """The number in an array of one element, as a Python number.

        Raises:
            OctantsRuntimeTypeError: there are several numbers.
        """
        shape = (*self.shape, *self.element_shape)
        if math.prod(shape) != 1:
            raise NotOneNumber(self.describe(), str(shape)).at()
        return self.to_numpy().item()

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    # -- elements -------------------------------------------------------------------------------

    @overload
    def __getitem__(self, key: int | tuple[int, ...] | None) -> E: ...
    @overload
    def __getitem__(self, key: Any) -> Any: ...
    def __getitem__(self, key: Any) -> Any:
        try:
            index = self._plain_index(key)
            if index is None:
                if type(key) in _SLICES and host_slices.has_slice(key):
                    return self._slice(key)
                index = self._index(key)
            host_access_events.before_read(self)
            return make_element(self, index) if self.element_shape else self.window().item(index)
        except OctantsError as error:  # a decorator would take longer than the rest
            __tracebackhide__ = True
            raise error.with_traceback(of_users(error))  # noqa: B904

    def _slice(self, key: Any) -> Any:
        """``x[i:j]``, ``x[:, k]``: a copy, as a numpy array that cannot be written."""
        return host_slices.read_slice(self, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        try:
            index = self._plain_index(key)
            if index is None:
                if type(key) in _SLICES and host_slices.has_slice(key):
                    host_slices.write_slice(self, key, value)
                    return
                index = self._index(key)
            if not is_ready(value, self.dtype):
                value = convert_element(self.describe(), value, self.dtype, self.element_shape)
            self.write(value, index)
        except OctantsError as error:
            __tracebackhide__ = True
            raise error.with_traceback(of_users(error))  # noqa: B904

    @internal
    def write(self, values: Any, region: ElementRange = (), source: Any = None) -> None:
        """Store converted values: every write of the host goes through here."""
        window = self._opened or self._reopen()
        if self._is_sparse:
            values = self._activate(values, region)
        if self.is_read_only:
            raise ReadOnly(self.describe()).at()
        host_access_events.before_write(self, region, source)
        window.write(values, region)
        self.note_write(region)
        if source is not None and self.is_untracked:
            host_access_events.before_share(self, True)

    def _activate(self, values: Any, region: ElementRange) -> Any:  # noqa: ARG002
        """The values that a write to sparse blocks stores; it activates the cells of an element."""
        return values

    def _plain_index(self, key: Any) -> ElementRange | None:
        """The index of an element as in `_index`, if it takes no conversion, and no error."""
        window = self._opened or self._reopen()
        rank, extents = window.rank, window.shape
        if type(key) is int:
            return (key,) if rank == 1 and 0 <= key < extents[0] and not self.offset else None
        if type(key) is not tuple or len(key) != rank or self.offset:
            return None if key is not None or rank else ()
        for index, extent in zip(key, extents, strict=False):
            if type(index) is not int or not 0 <= index < extent:
                return None
        return key

    def _index(self, key: Any) -> ElementRange:
        """The index of an element, counted from 0, of what stands in the brackets."""
        window = self.window()
        extents, rank = window.shape, window.rank
        given = () if key is None else key if isinstance(key, tuple) else _listed(key)
        if len(given) != rank:
            advice = (IS_KERNEL_MISSING,) if isinstance(key, Matrix) else ()
            raise WrongNumberOfIndices(self.describe(), rank, describe(key), *advice).at()
        first = self.offset or (0,) * rank
        return tuple(
            self._position(axis, item, first[axis], extents[axis])
            for axis, item in enumerate(given)
        )

    @internal
    def position(self, axis: int, item: Any) -> int:
        """The index along an axis, counted from 0, of what stands in the brackets."""
        first = self.offset[axis] if self.offset else 0
        return self._position(axis, item, first, self.window().shape[axis])

    def _position(self, axis: int, item: Any, first: int, extent: int) -> int:
        try:
            number = operator.index(item)
        except TypeError:
            is_element = isinstance(item, (float, Matrix))
            advice = (IS_KERNEL_MISSING,) if is_element else ()
            raise WrongIndex(self.describe(), describe(item), *advice).at() from None
        if not first <= number < first + extent:
            last = first + extent - 1
            raise IndexOutOfRange(self.describe(), number, axis, first, last).at()
        return number - first

    # -- whole arrays ---------------------------------------------------------------------------

    def tolist(self) -> Any:
        """The elements as nested lists of Python numbers; a number if there are no axes."""
        return self.to_numpy().tolist()

    def fill(self, val: Any) -> None:
        """Set all elements to a number, a vector or a matrix.

        Raises:
            OctantsValueError: the value has not the shape of an element.
            OctantsRuntimeTypeError: it holds something that is no number.
        """
        try:
            if not is_ready(val, self.dtype):
                what = f"fill() of {self.describe()}"
                val = convert_element(what, val, self.dtype, self.element_shape)
            self.write(val)
        except OctantsError as error:
            __tracebackhide__ = True
            raise error.with_traceback(of_users(error))  # noqa: B904

    @shortens_tracebacks
    def to_numpy(self, dtype: Any = None, *, copy: bool = True) -> Array:
        """The elements as a numpy array of `shape` + `element_shape`, row-major.

        Args:
            dtype: a type to convert them to.
            copy: False gives the memory itself, with the strides of the layout. See `mark_written`
                for writes under a tape.

        Raises:
            OctantsValueError: ``copy=False``, and the host does not share the memory of the device.
        """
        window = self.window()
        host_access_events.before_read(self)
        if isinstance(dtype, str):
            dtype = np.dtype(dtype)
        return self._convert(window.read(), dtype) if copy else self._share(window, dtype)

    def _convert(self, values: Array, dtype: Any) -> Array:
        if dtype is None:
            return values
        try:
            target = resolve(dtype)
        except TypeError:
            return values.astype(dtype)
        return convert_array("to_numpy()", values, target)

    def _share(self, window: HostWindow, dtype: Any) -> Array:
        self.require_shareable()
        view = self._host_view(window)
        if dtype is not None and resolve(dtype) is not self.dtype:
            problem = f"its elements are {self.dtype}, not {dtype}"
            raise CannotShare(f"sharing {self.describe()}", problem).at()
        self.note_export(counted=False)
        return view

    def _host_view(self, window: HostWindow) -> Array:
        """The memory itself, as an array of numpy; an error where it cannot be."""
        view = window.view()
        if view is None:
            problem = dlpack_export.SPLIT if window.part() is None else dlpack_export.ELSEWHERE
            raise CannotShare(f"sharing {self.describe()}", problem).at()
        return view

    @shortens_tracebacks
    def from_numpy(self, arr: Any) -> None:
        """Copy a numpy array of `shape` + `element_shape` into this.

        Elements are converted as by `cast`: floats become integers by truncation. A warning names
        the first number that changes as it becomes an integer.

        Raises:
            OctantsRuntimeTypeError: it is no numpy array of numbers.
            OctantsValueError: it has another shape.
        """
        if type(arr) is not np.ndarray:
            refuse_masked("from_numpy()", arr)
        if (
            isinstance(arr, np.ndarray)
            and arr.dtype == self.dtype.numpy
            and arr.shape == self.window().shape
        ):
            self.write(arr)
            return
        what = f"from_numpy() of {self.describe()}"
        if isinstance(arr, np.generic):  # numpy makes one of an array without axes: `a * 0.5`
            arr = np.asarray(arr)
        if not isinstance(arr, np.ndarray):
            advice = "use `numpy.asarray(...)`, or `from_torch` for a tensor"
            raise WrongArray(what, describe(arr), "a numpy array", advice).at()
        self._copy_in(what, arr)

    def _copy_in(self, what: str, values: Array, source: Any = None) -> None:
        shape = self.window().shape
        with_axis = (*shape, 1) if len(self.element_shape) == 1 else shape
        without = shape[:-1] if self.element_shape[1:] == (1,) else shape
        check_shape(what, values.shape, shape, with_axis, without)
        self.write(convert_stored(what, values, self.dtype).reshape(shape), source=source)

    @shortens_tracebacks
    def copy_from(self, other: Any) -> None:
        """Copy the elements of a field or an ndarray of the same shape, from any device.

        Under a tape the adjoints go to the array that was copied.

        Raises:
            OctantsRuntimeTypeError: it is no field or ndarray.
            OctantsValueError: it has another shape.
        """
        if other is self:
            return
        if not isinstance(other, Tensor):
            what, advice = f"copy_from() of {self.describe()}", "use `from_numpy` or `from_torch`"
            raise WrongArray(what, describe(other), "a field or an ndarray", advice).at()
        window, own = other.window(), self.window()
        host_access_events.before_read(other)
        if other.dtype is self.dtype and window.stands_like(own) and not self._is_sparse:
            self.write(window.saved_for(own), source=other)
            return
        what = f"copy_from() of {self.describe()}"
        check_shape(what, window.shape, own.shape)
        self._copy_in(what, window.read(), other)

    @shortens_tracebacks
    def to_torch(self, device: Any = None, *, copy: bool = True) -> Any:
        """The elements as a torch tensor.

        Args:
            device: the device of the tensor; without it, the one where the elements are.
            copy: False gives the memory itself. On a CPU, see `mark_written` for writes under a
                tape; on a GPU torch counts those through the tensor and its views.
        """
        if not copy:
            return self._share_torch(device)
        window = self.window()
        interface = None if device is None else window.interface()
        if interface is None or str(device) == "cpu":
            return torch_and_dlpack_conversion.to_torch(self.to_numpy(), device)
        host_access_events.before_read(self)
        return (
            torch_and_dlpack_conversion.torch_of_memory(interface, window, self._device())
            .clone()
            .to(device)
        )

    def _share_torch(self, device: Any) -> Any:
        """The memory as a tensor; all of them have one counter of writes."""
        if self._tensor is None:
            self.require_shareable()
            window = self.window()
            interface = window.interface()
            host_access_events.before_read(self)
            elements = self._host_view(window) if interface is None else interface
            self.note_export(counted=not self._device().shares_memory)
            self._tensor = torch_and_dlpack_conversion.torch_of_memory(
                elements, window, self._device()
            )
        tensor = self._tensor.detach()
        return tensor if device is None else tensor.to(device)

    @shortens_tracebacks
    def from_torch(self, arr: Any) -> None:
        """Copy a torch tensor of `shape` + `element_shape`, from any device, into this."""
        what = f"from_torch() of {self.describe()}"
        window = self.window()
        is_tensor = torch_and_dlpack_conversion.is_torch_tensor(arr)
        there = is_tensor and arr.device.type != "cpu" and window.find(arr)
        if there:
            self.write(there)
        else:
            self._copy_in(what, torch_and_dlpack_conversion.torch_to_numpy(what, arr))

    @internal
    def note_export(self, *, counted: bool = True) -> None:
        """Note that others see the memory from now on, and may pass it as another array.

        Unless their writes are ``counted``, tapes compare the contents.
        """
        primal = self.primal
        is_first = primal.explicit_identity is not None
        becomes_untracked = primal is self and not (counted or self.is_untracked)
        if is_first or becomes_untracked:
            host_access_events.before_share(primal, becomes_untracked)
        self.is_untracked |= becomes_untracked
        if is_first:
            primal.explicit_identity = None
            host_access_events.after_share(primal)

    # -- protocols ------------------------------------------------------------------------------

    def to_dlpack(self, versioned: bool = False) -> Any:
        """A DLPack capsule of the memory itself; see `mark_written` for writes under a tape."""
        return self.__dlpack__(max_version=(1, 0) if versioned else None)

    @shortens_tracebacks
    def from_dlpack(self, source: Any) -> None:
        """Copy an array of another library, which offers ``__dlpack__``, into this."""
        what = f"from_dlpack() of {self.describe()}"
        window, device = self.window(), self._device()
        there = (
            None
            if device.shares_memory
            else torch_and_dlpack_conversion.import_array(device, what, source)
        )
        if there is None:
            self._copy_in(what, torch_and_dlpack_conversion.from_dlpack(what, source))
        elif (there.part.shape, there.part.dtype) == (window.shape, self.dtype.numpy):
            self.write(there)
        else:
            self._copy_in(what, window.parts.read(there.part))

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """The memory itself, after all launches so far; with ``copy=True`` a copy of it."""
        self.require_shareable()
        window, what = self.window(), f"sharing {self.describe()}"
        host_access_events.before_read(self)
        asked = stream, max_version, dl_device, copy
        capsule = dlpack_export.capsule(what, window, self._device(), self.is_read_only, *asked)
        if not copy:
            self.note_export(counted=False)
        return capsule

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """The memory itself, where it is a GPU's; see `mark_written` for writes under a tape."""
        interface = self.window().interface()
        self.require_shareable()
        if interface is None:
            raise AttributeError(f"{self.describe()} is in no memory that is shared like this")
        host_access_events.before_read(self)
        self.note_export(counted=False)
        if self._exported is None:
            self._exported = self._device().export_memory(None)
        return interface

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._device().dlpack_device

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return Tensor.to_numpy(self, dtype, copy=copy is not False)

    def __reduce_ex__(self, _: Any) -> Any:
        raise CannotCopy(self.describe()).at()

    def __str__(self) -> str:
        if self._end is not None:
            return repr(self)
        try:
            return str(self._values_now())
        except OctantsError:
            return repr(self)

    @internal
    def values_text(self) -> str:
        """The values for `repr`: "" where there are none, many, or none to be read now."""
        if not 0 < self.size <= _SHOWN:
            return ""
        try:
            text = np.array2string(self._values_now(), threshold=100, edgeitems=3)
        except OctantsError:  # the next call that can raise it does
            return ""
        return ("\n" if "\n" in text else ": ") + text

    def _values_now(self) -> Array:
        """The values, which are zeros before the first use; this is none."""
        self.require_alive()
        if not self.is_allocated:
            return np.zeros((*self.shape, *self.element_shape), self.dtype.numpy)
        return self.read()

    def mark_written(self, region: Any = ()) -> None:
        """Note that others have written the memory: through a numpy view, or through a pointer.

        `region` holds leading indices of what was written; without it, that is all. Under a tape
        this counts as a write of the host: the adjoint of what was overwritten ends. Without the
        call, a write to an array with a gradient between two launches is an error.
        """
        host_access_events.after_write(self, region if isinstance(region, tuple) else (region,))
        super().mark_written()

    # -- for the tape ---------------------------------------------------------------------------

    @property
    def shared_version(self) -> int:
        """The number of writes through torch's tensors on this memory, as torch counts them."""
        tensor = self._tensor
        return 0 if tensor is None else torch_and_dlpack_conversion.writes_of(tensor)

    @property
    def identity(self) -> Hashable:
        """A number that no other array has."""
        return self.octants_number

    @property
    def extent(self) -> tuple[int, int]:
        """The addresses of the first byte, and past the last one; others' bytes may lie between."""
        return self.window().extent

    @property
    def nbytes(self) -> int:
        """The bytes of the elements."""
        return self.window().nbytes

    def snapshot(self) -> Any:
        """A copy of the elements, for `restore`."""
        return self.window().save()

    def read(self, region: ElementRange = ()) -> Array:
        """A copy of the elements at ``region``; observers are not notified."""
        return self.window().read(region)

    @internal
    def add(self, values: Any, region: ElementRange = ()) -> None:
        """Add to elements; observers are not notified."""
        window = self.window()
        window.write(window.read(region) + values, region)

    def restore(self, snapshot: Any) -> None:
        """Write back what `snapshot` gave; observers are not notified."""
        self.window().restore(snapshot)

    def contiguous_range(self) -> tuple[Device, int, int] | None:
        """See `StoredArray.contiguous_range`."""
        return self.window().contiguous_range()

    def clear(self, region: ElementRange = ()) -> None:
        """Set elements to zero; observers are not notified."""
        if region:
            self.window().write(0, region)
        else:
            self.window().clear()


def _listed(key: Any) -> tuple[Any, ...]:
    """Several indices in a list or a vector, or one index."""
    return tuple(key) if isinstance(key, list) or hasattr(key, "get_shape") else (key,)


def wrap(impl: Any) -> Tensor:
    """The field or ndarray itself, which is a tensor already.

    Raises:
        OctantsRuntimeTypeError: for anything but a field or an ndarray.
    """
    require_kind("Tensor", impl, Tensor, "a field or an ndarray")
    tensor: Tensor = impl
    return tensor


def require_kind(what: str, value: Any, kind: type, needed: str) -> None:
    """An error if a value is not an instance of ``kind``, which ``needed`` describes."""
    if not isinstance(value, kind):
        raise WrongArray(what, describe(value), needed).at()

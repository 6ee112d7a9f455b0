"""Algorithms that are called on the host."""

from __future__ import annotations

from types import FunctionType
from typing import Any, NoReturn, cast

from octants.algorithms.prefix_sums import inclusive_sum
from octants.algorithms.radix_sort import BITS, sort, sort_by_16_bits, sort_scratch_slots
from octants.algorithms.reductions import NUMBERS
from octants.data.array_base import Tensor
from octants.data.ndarray import make_ndarray, ndarray
from octants.diagnostics.library_errors import WrongAlgorithmArray
from octants.launch.kernel import Kernel
from octants.types.parameter_annotations import AnyTensor, CompileTime
from octants.types.scalars import i32, u32


def parallel_sort(keys: Any, values: Any = None) -> None:
    """Sort keys in ascending order, in place, and values along with them; stable.

    The order is that of `numpy.sort`: NaN comes last. The keys are sorted by `sort`, with arrays
    that are allocated for the call; call that in a kernel to reuse them.

    Example::

        keys = qd.array(np.array([3, 1, 2], np.int32))
        values = qd.array(np.array([0, 1, 2], np.int32))
        qd.algorithms.parallel_sort(keys, values)  # keys: 1 2 3, values: 1 2 0

    Args:
        keys: a field or an ndarray of numbers with one axis.
        values: another one, of any elements, as long as ``keys``.

    Raises:
        OctantsRuntimeTypeError: ``keys`` or ``values`` are something else.
    """
    count = _length("parallel_sort", keys, BITS)
    if values is not None and (not isinstance(values, Tensor) or values.shape != (count,)):
        _refuse("parallel_sort", f"values in a field or an ndarray of shape ({count},)", values)
    scratch = ndarray(u32, sort_scratch_slots(count), device=keys.device)
    n = ndarray(i32, (), device=keys.device)
    n[None] = count
    spare = _like(keys)
    moved = (keys, spare) if values is None else (values, _like(values))
    arrays, kind = (keys, spare, *moved, scratch, n), (keys.dtype, values is not None)
    bits = BITS[keys.dtype]
    if bits <= 32:
        _sort(*arrays, *kind, bits)
        return
    for bit in range(0, bits, 16):
        _sort_by_16_bits(*arrays, *kind, bit)


class PrefixSumExecutor:
    """Inclusive prefix sums in place: ``PrefixSumExecutor(n).run(x)``.

    Afterwards ``x[i]`` is the sum of what ``x[0]`` to ``x[i]`` were. Floats are added in an order
    that depends on the length alone. In kernels, use `exclusive_scan_add`.

    Example::

        counts = qd.array(np.array([2, 0, 1, 3], np.int32))
        qd.algorithms.PrefixSumExecutor(4).run(counts)  # counts: 2 2 3 6

    Args:
        length: how many elements each array has that is given to `run`.
    """

    def __init__(self, length: int) -> None:
        self.length = int(length)

    def run(self, input_arr: Any) -> None:
        """Sum up a field or an ndarray of numbers with one axis.

        Raises:
            OctantsRuntimeTypeError: It is something else, or has another length.
        """
        count = _length("PrefixSumExecutor.run", input_arr, NUMBERS)
        if count != self.length:
            _refuse("PrefixSumExecutor.run", f"{self.length} elements", input_arr)
        _sum_up(input_arr, count, input_arr.dtype)


def _length(name: str, given: Any, types: Any) -> int:
    """The length of an array of numbers with one axis."""
    if not isinstance(given, Tensor) or len(given.shape) != 1 or given.element_shape:
        _refuse(name, "a field or an ndarray of numbers with one axis", given)
    if given.dtype not in types:
        _refuse(name, "integers or floats", given)
    return int(given.shape[0])


def _refuse(name: str, wanted: str, given: Any) -> NoReturn:
    text = given.describe() if isinstance(given, Tensor) else f"a `{type(given).__name__}`"
    raise WrongAlgorithmArray(name, wanted, text).at()


def _like(array: Tensor) -> Any:
    """An ndarray like another array, with a gradient if that has one."""
    has_gradient = getattr(array, "grad", None) is not None
    return make_ndarray(
        array.dtype,
        array.shape,
        element_shape=array.element_shape,
        needs_grad=has_gradient,
        device=array.device,
    )


def _kernel(function: Any) -> Kernel:
    return Kernel(cast(FunctionType, function), dict)


@_kernel
def _sort(
    keys: AnyTensor,
    spare: AnyTensor,
    values: AnyTensor,
    moved: AnyTensor,
    scratch: AnyTensor,
    n: AnyTensor,
    dtype: CompileTime,
    has_values: CompileTime,
    bits: CompileTime,
) -> None:
    sort(keys, spare, values, moved, scratch, n, dtype, has_values, bits)


@_kernel
def _sort_by_16_bits(
    keys: AnyTensor,
    spare: AnyTensor,
    values: AnyTensor,
    moved: AnyTensor,
    scratch: AnyTensor,
    n: AnyTensor,
    dtype: CompileTime,
    has_values: CompileTime,
    bit: i32,  # type: ignore[valid-type]
) -> None:
    """Compiles in a quarter of the time of all 64 bits, and is as fast.

    Keys of 32 bits take up to 1.5 times as long by a bit that is known at run time only.
    """
    sort_by_16_bits(keys, spare, values, moved, scratch, n, dtype, has_values, bit)


@_kernel
def _sum_up(arr: AnyTensor, n: i32, dtype: CompileTime) -> None:  # type: ignore[valid-type]
    inclusive_sum(arr, n, dtype)

"""The words of the language that steer compilation: ``static``, ``ndrange``, ``loop_config``, ...

In a kernel their meaning is given by `octants.frontend`; some work on the host as well.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from octants.lang.library_function_marks import kernel_only
from octants.types.matrix_values import Matrix
from octants.types.parameter_annotations import Template

__all__ = [
    "block_dim",
    "block_local",
    "cache_read_only",
    "checkpoint",
    "grouped",
    "loop_config",
    "ndrange",
    "parallelize",
    "serialize",
    "static",
    "static_assert",
    "static_print",
    "stream_parallel",
    "strictly_serialize",
    "template",
]

template = Template
_Index = TypeVar("_Index")


def static(x: Any, *more: Any) -> Any:
    """Evaluate an expression at compile time.

    ``if static(...)`` keeps one branch, ``for i in static(range(3))`` is unrolled. Elsewhere
    ``static(x)`` is the object x: ``not static(flag)``, ``v[static(k)]``, ``static(table)[1]``.

    Example::

        @qd.kernel
        def smooth(x: qd.types.ndarray(qd.f32, 1), y: qd.types.ndarray(qd.f32, 1)):
            for i in range(1, x.shape[0] - 1):
                for d in qd.static(range(-1, 2)):  # three terms, without a loop
                    y[i] += x[i + d] / 3.0

    Returns:
        On the host, its argument, or the tuple of several.
    """
    return (x, *more) if more else x


def static_assert(cond: Any, msg: str | None = None) -> None:
    """Stop compiling the kernel if the compile-time condition `cond` is false; `msg` says why."""
    assert cond, msg or "static assertion failed"


def static_print(*values: Any, sep: str = " ", end: str = "\n") -> None:
    """Print `values` and types while the kernel is compiled.

    `sep` stands between them and `end` after them, as in Python's ``print``.
    """
    print(*values, sep=sep, end=end)


class ndrange:  # noqa: N801 - a word of the language
    """The product of ranges: ``for i, j in ndrange(n, (lo, hi))``; the last index is the fastest.

    Each range is an extent (from 0) or a pair of bounds. `axes` nests them in another order: it has
    the positions of the ranges from the slowest to the fastest, so that ``axes=(1, 0)`` has the
    first index run fastest; indices come in the order of the ranges all the same. On the host it
    can be iterated over and gives tuples of integers.

    Example::

        @qd.kernel
        def fill(image: qd.types.ndarray(qd.f32, 2)):
            for i, j in qd.ndrange(image.shape[0], (1, image.shape[1] - 1)):
                image[i, j] = 1.0
    """

    def __init__(self, *ranges: Any, axes: Sequence[int] | None = None) -> None:
        self.bounds: tuple[tuple[int, int], ...] = tuple(map(_bounds, ranges))
        self.axes = nesting_order(axes, len(ranges))

    @property
    def dimensions(self) -> tuple[int, ...]:
        """The number of values of each index."""
        return tuple(max(0, high - low) for low, high in self.bounds)

    def __iter__(self) -> Iterator[tuple[int, ...]]:
        nest = itertools.product(*(range(*self.bounds[axis]) for axis in self.axes))
        if self.axes == tuple(range(len(self.axes))):
            return nest
        return (in_order_of_ranges(indices, self.axes) for indices in nest)

    def __repr__(self) -> str:
        order = "" if self.axes == tuple(range(len(self.axes))) else f", axes={self.axes}"
        return f"ndrange({', '.join(map(str, self.bounds))}{order})"


def nesting_order(axes: Any, count: int) -> tuple[int, ...]:
    """The positions of the ranges of an `ndrange`, slowest first; ``ValueError`` for wrong ones."""
    if axes is None:
        return tuple(range(count))
    given = tuple(axes) if isinstance(axes, (Sequence, Matrix)) else (axes,)
    if not all(hasattr(axis, "__index__") for axis in given) or sorted(given) != [*range(count)]:
        raise ValueError(f"the `axes` of ndrange are a permutation of range({count}), not {axes!r}")
    return tuple(map(int, given))


def in_order_of_ranges(indices: Sequence[_Index], axes: Sequence[int]) -> tuple[_Index, ...]:
    """The indices of a nest, which come slowest first, in the order of the ranges."""
    return tuple(index for _, index in sorted(zip(axes, indices, strict=True), key=_position))


def _position(pair: tuple[int, Any]) -> int:
    return pair[0]


def _bounds(extent: Any) -> tuple[int, int]:
    if not isinstance(extent, (tuple, list)):
        return 0, _integer(extent)
    if len(extent) != 2:
        raise ValueError(f"a range of ndrange is an extent or a pair of bounds, not {extent!r}")
    return _integer(extent[0]), _integer(extent[1])


def _integer(x: Any) -> int:
    if isinstance(x, float) or not hasattr(x, "__index__"):
        raise TypeError(f"the bounds of ndrange are integers, not {x!r}")
    return int(x.__index__())


@kernel_only
def grouped(x: Any) -> Any:
    """``for I in grouped(x)``: the index of an element of a field, array or ndrange as a vector."""


def loop_config(
    *,
    block_dim: int | None = None,
    serialize: bool = False,
    parallelize: int | None = None,
    bit_vectorize: bool = False,
    block_dim_adaptive: bool = True,
    name: str | None = None,
    simd: bool | int | None = None,
) -> None:
    """Configure the next loop.

    On the host, where all loops run in order, this does nothing. So it does in a parallel loop of
    a kernel, and gives a warning there.

    Example::

        @qd.kernel
        def scale(x: qd.types.ndarray(qd.f32, 1)):
            qd.loop_config(block_dim=128, name="scale")
            for i in x:
                x[i] *= 2.0

    Args:
        block_dim: the number of work items in a block.
        serialize: run a top-level loop of a kernel in order, on one thread.
        parallelize: the number of threads on a CPU; 1 means `serialize`.
        bit_vectorize: ignored.
        block_dim_adaptive: ignored.
        name: the name of the loop in profiles.
        simd: whether a CPU runs several work items at once, one in each lane of its vectors; a
            number sets the number of lanes. It overrides `init`.
    """


@kernel_only
def do_while(condition: Any) -> Any:
    """``while graph.do_while(counter):`` - run the body once, and again while the counter is not 0.

    The counter is an array of integers of shape (), which the body changes. At the top level of a
    kernel, or directly in the body of another one, the loops of the body run in parallel, and the
    host reads the counter after each iteration. Else, where variables of the kernel other than
    extents and constants are used on both sides of the loop's ends, and where `break` or `return`
    leaves it, the body runs in order on one work item.

    Example::

        @qd.kernel(graph=True)
        def halve(x: qd.types.ndarray(qd.f32, 1), remaining: qd.types.ndarray(qd.i32, 0)):
            while qd.graph.do_while(remaining):
                for i in x:
                    x[i] *= 0.5
                remaining[None] -= 1
    """


@contextlib.contextmanager
def stream_parallel() -> Iterator[None]:
    """``with stream_parallel():`` - loops that may run while those of other such blocks do.

    It stands at the top level of a kernel. The loops of one block run in order; what follows the
    last block waits for all. Two loops of which one writes what the other reads or writes run in
    order anyway. Octants takes for granted only that no two arguments share memory. The blocks run
    at the same time on CUDA, in kernels that print and check nothing. On the host it does nothing.
    """
    yield


@contextlib.contextmanager
def parallel_context() -> Iterator[None]:
    """``with graph.parallel_context():`` - a region of sections that may run at the same time.

    It stands at the top level of a kernel, or directly in the body of `do_while`, and contains
    blocks ``with graph.parallel():``, conditions in `static` around them, and nothing else. The
    sections begin when everything before the region is complete, and everything after it waits for
    all of them. On CUDA they overlap as blocks of `stream_parallel` do; elsewhere they run in
    order. On the host it does nothing.
    """
    yield


@contextlib.contextmanager
def parallel() -> Iterator[None]:
    """``with graph.parallel():`` - a section of a `parallel_context`, whose code runs in order.

    No section may write what another one reads or writes. Where the compiler sees that one does,
    the sections run in order. On the host it does nothing.
    """
    yield


@contextlib.contextmanager
def checkpoint(cp_id: int, yield_on: Any) -> Iterator[None]:  # noqa: ARG001
    """``with checkpoint(label, yield_on=flag):`` - a part of a kernel after which it may pause.

    If ``flag`` is not 0 when the part is complete, the launch ends there and returns a
    `GraphStatus` with the label. ``kernel.resume(..., from_checkpoint=label)`` then continues from
    the beginning of the part. Only the host sets the flag back to 0.

    The kernel is decorated with ``@qd.kernel(checkpoints=True)``. Checkpoints stand at its top
    level or directly in the body of `do_while`, also in conditions in `static`. On the host this
    does nothing.

    Args:
        cp_id: the label, an integer or a member of an ``IntEnum`` that no other checkpoint of the
            kernel has.
        yield_on: an array of integers of shape (), which the part sets to pause.
    """
    yield


def block_local(*arrays: Any) -> None:
    """Accepted in kernels and ignored: a hint that arrays be kept in a GPU's shared memory."""


def cache_read_only(*arrays: Any) -> None:
    """Accepted in kernels and ignored: a hint that a loop only reads arrays."""


def block_dim(dim: int) -> None:
    """The older spelling of ``loop_config(block_dim=dim)``."""


def parallelize(v: int) -> None:
    """The older spelling of ``loop_config(parallelize=v)``."""


def serialize() -> None:
    """The older spelling of ``loop_config(serialize=True)``."""


def strictly_serialize() -> None:
    """The older spelling of ``loop_config(serialize=True)``."""

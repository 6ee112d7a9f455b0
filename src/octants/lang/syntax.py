"""The words of the language that steer compilation: ``static``, ``ndrange``, ``loop_config``, ...

In a kernel their meaning is given by `octants.frontend`; some work on the host as well.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from typing import Any

from octants.types.annotations import Template

__all__ = [
    "block_local",
    "grouped",
    "loop_config",
    "ndrange",
    "static",
    "static_assert",
    "static_print",
    "stream_parallel",
    "template",
]

template = Template


def static(x: Any, *more: Any) -> Any:
    """Evaluate an expression when the kernel is compiled.

    ``if static(...)`` keeps one branch, ``for i in static(range(3))`` is unrolled. Anywhere else
    ``static(x)`` is the object x: ``not static(flag)``, ``v[static(k)]``, ``static(table)[1]``. On
    the host it gives back its argument, or the tuple of several.
    """
    return (x, *more) if more else x


def static_assert(condition: Any, message: str | None = None) -> None:
    """Stop the compilation of the kernel if a compile-time condition does not hold."""
    assert condition, message or "static assertion failed"


def static_print(*values: Any, sep: str = " ", end: str = "\n") -> None:
    """Print values and types while the kernel is compiled."""
    print(*values, sep=sep, end=end)


class ndrange:  # noqa: N801 - a word of the language
    """The product of ranges: ``for i, j in ndrange(n, (lo, hi))``; the last index is the fastest.

    Each range is an extent (from 0) or a pair of bounds. On the host it can be iterated over and
    gives tuples of integers.
    """

    def __init__(self, *ranges: Any) -> None:
        self.bounds: tuple[tuple[int, int], ...] = tuple(map(_bounds, ranges))

    @property
    def dimensions(self) -> tuple[int, ...]:
        """The number of values of each index."""
        return tuple(max(0, high - low) for low, high in self.bounds)

    def __iter__(self) -> Iterator[tuple[int, ...]]:
        return itertools.product(*(range(low, high) for low, high in self.bounds))

    def __repr__(self) -> str:
        return f"ndrange({', '.join(map(str, self.bounds))})"


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


def grouped(x: Any) -> Any:
    """``for I in grouped(x)``: the index of an element of a field, array or ndrange as a vector."""
    raise TypeError(f"grouped({x!r}) is for the loops of kernels")


def loop_config(
    *,
    block_dim: int | None = None,
    serialize: bool = False,
    parallelize: int | None = None,
    bit_vectorize: bool = False,
    name: str | None = None,
    simd: bool | int | None = None,
) -> None:
    """Say how the next loop is to run.

    ``serialize=True`` runs a top-level loop of a kernel in order, on one thread; `parallelize` is
    the number of threads on a CPU (1 means `serialize`), `block_dim` the threads of a block on a
    GPU, `name` the name of the loop in profiles. `simd` says whether a CPU runs several work items
    at once, one in each lane of its vectors, whatever `init` says; a number says how many.
    `bit_vectorize` is accepted and ignored. On the host, where all loops run in order, it does
    nothing.
    """


@contextlib.contextmanager
def stream_parallel() -> Iterator[None]:
    """``with stream_parallel():`` - loops that may run at the same time as those of such blocks
    before and after this one.

    It stands at the top level of a kernel. The loops of one block run in order; what follows the
    last block waits for all. Loops of which one writes what another reads or writes run in order
    anyway; only that no two arguments share memory is taken for granted. They run at the same
    time on CUDA, in kernels that print and check nothing. On the host it does nothing.
    """
    yield


def block_local(*arrays: Any) -> None:
    """Accepted in kernels and ignored: a hint that arrays be kept in a GPU's shared memory."""

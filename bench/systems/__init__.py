"""The systems that are compared, each in its own terms.

A module defines ``System(threads)`` with ``describe()``, ``sync()``, ``program(problem)``,
``chain(statements, folder)`` and ``launches()``. A program has ``forward()``, ``seed()``, which
makes ready for a reverse run, ``backward()``, and what it found: ``value()`` and ``gradient()``,
flat numpy arrays. What a system does not do raises `NotOffered` with the reason.
"""

from __future__ import annotations

from dataclasses import dataclass


class NotOffered(Exception):
    """The system has nothing of the kind; the text says why."""


@dataclass(frozen=True)
class Entry:
    """Where a system is: its module here, and the package that must be installed."""

    label: str
    module: str
    package: str


SYSTEMS = {
    "octants": Entry("Octants", "fields", "octants"),
    "c-simd": Entry("C, SIMD", "c", "numpy"),
    "c-scalar": Entry("C, scalar", "c", "numpy"),
    "quadrants": Entry("Quadrants", "fields", "quadrants"),
    "taichi": Entry("Taichi", "fields", "taichi"),
    "warp": Entry("Warp", "warp_arrays", "warp"),
    "jax": Entry("JAX", "jax_arrays", "jax"),
    "numba": Entry("numba", "numba_arrays", "numba"),
}
# The C reference in double precision is what results are compared with; it is not timed.
REFERENCE = "c-double"

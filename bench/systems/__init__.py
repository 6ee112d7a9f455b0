"""The systems that are compared, each in its own terms.

A module defines ``System(threads, arch)``, where arch is "cpu", "cuda" or "vulkan", with
``describe()``, ``sync()``, ``program(problem)``, ``chain(statements, folder)`` and ``launches()``.
A program has ``forward()``, ``seed()``, which makes ready for a reverse run, ``backward()``, and
what it found: ``value()`` and ``gradient()``, flat numpy arrays. Where `is_paired` is true, each
``backward()`` needs a ``forward()`` of its own. After a ``backward()``, `tape_bytes` is what is
kept on the GPU of what the loops computed, if the system tells. What a system does not do raises
`NotOffered` with the reason.
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
    "drjit": Entry("Dr.Jit", "drjit_arrays", "drjit"),
    "numba": Entry("numba", "numba_arrays", "numba"),
    "cuda": Entry("CUDA by hand", "cuda", "numpy"),
    "torch": Entry("torch", "torch_arrays", "torch"),
}
ON_CPUS = ("octants", "c-simd", "c-scalar", "quadrants", "taichi", "warp", "jax", "drjit", "numba")
ON_GPUS = ("octants", "cuda", "quadrants", "taichi", "warp", "jax", "drjit", "torch")
# The references in double precision are what results are compared with; they are not timed.
REFERENCE, GPU_REFERENCE = "c-double", "cuda-double"
MODULES = {REFERENCE: "c", GPU_REFERENCE: "cuda"} | {n: e.module for n, e in SYSTEMS.items()}

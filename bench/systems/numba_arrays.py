"""numba, which compiles functions and takes no gradients: what a call of a function costs."""
# mypy: ignore-errors

from __future__ import annotations

import numba
import numpy as np

from systems import NotOffered


class System:
    """The decorator `njit`."""

    def __init__(self, threads: int, arch: str) -> None:
        """Nothing to start."""

    def describe(self):
        """What it ran with."""
        return {"version": numba.__version__, "flags": "njit", "accuracy": "fastmath=False"}

    def sync(self) -> None:
        """Calls return when all is done."""

    def program(self, problem):
        """Not compared: it has no gradients."""
        raise NotOffered("no gradients")

    def chain(self, statements, folder):
        """Not compared: it has no gradients."""
        raise NotOffered("no gradients")

    def launches(self):
        """Calls of functions that do next to nothing."""
        x, loss = np.zeros(8, np.float32), np.zeros(1, np.float32)
        arrays = [np.zeros(8, np.float32) for _ in range(4)]
        return {
            "one array": lambda: of_one_array(x, loss),
            "4 arrays and a scalar": lambda: of_arrays(*arrays, 0.5),
        }


@numba.njit
def of_one_array(x, loss):
    for i in range(8):
        loss[0] += x[i] * x[i]


@numba.njit
def of_arrays(a, b, c, d, s):
    for i in range(8):
        a[i] = b[i] + s * c[i] * d[i]

"""Maps the compute capability of an NVIDIA GPU to the target that LLVM compiles for."""

from __future__ import annotations

from octants.target import Target

TRIPLE = "nvptx64-nvidia-cuda"

_PTX = {75: 63, 80: 70, 86: 71, 87: 74, 89: 78, 90: 78, 100: 86, 101: 86, 103: 88, 120: 87, 121: 88}
"""The compute capabilities that LLVM knows, each with the PTX version that introduced it."""

LOWEST = 75
"""The least compute capability, 7.5."""


def target(capability: int) -> Target:
    """Return the target of a compute capability, such as 90 for 9.0.

    A device newer than the compiler runs code for an older one.
    """
    known = max(each for each in _PTX if each <= max(capability, LOWEST))
    return Target("cuda", TRIPLE, f"sm_{known}", f"+ptx{_PTX[known]}")

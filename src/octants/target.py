"""What code is generated for: limits and capabilities, no vendor logic."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Target:
    """A machine that kernels are compiled for.

    `features` is the comma-separated list of the CPU's features for LLVM.
    """

    arch: str
    triple: str = ""
    cpu: str = ""
    features: str = ""
    has_f64: bool = True
    has_i64: bool = True

"""The targets for AMD's GPUs, by the names that LLVM and ROCm give their processors."""

from __future__ import annotations

from octants.target import Target

TRIPLE = "amdgcn-amd-amdhsa"

WAVES = {
    **dict.fromkeys(("gfx90a", "gfx942", "gfx950"), 64),
    **dict.fromkeys(("gfx1030", "gfx1031", "gfx1032", "gfx1034", "gfx1035", "gfx1036"), 32),
    **dict.fromkeys(("gfx1100", "gfx1101", "gfx1102", "gfx1103", "gfx1150", "gfx1151"), 32),
    **dict.fromkeys(("gfx1200", "gfx1201"), 32),
}
"""The processors that code is made for, and how many threads of each work in step."""


def target(processor: str) -> Target:
    """The target of one of the processors of `WAVES`.

    LLVM 22 ends the process where it makes code of gfx11 at level 0 for a shift by 16 bits: it may
    not take half of a register there.
    """
    features = "-real-true16" if processor.startswith("gfx11") else ""
    return Target("amdgpu", TRIPLE, processor, features)

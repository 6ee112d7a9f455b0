"""What a device can do, as code generation asks it; and the error where it cannot."""

from __future__ import annotations

from octants.diagnostics.span import Span
from octants.diagnostics.vulkan_errors import MissingFeature
from octants.target import Target

MEANINGS = {
    "int64": "64-bit integers (shaderInt64)",
    "int16": "16-bit integers (shaderInt16)",
    "int8": "8-bit integers (shaderInt8)",
    "float64": "f64 (shaderFloat64)",
    "storage16": "16-bit numbers in memory (storageBuffer16BitAccess)",
    "storage8": "8-bit numbers in memory (storageBuffer8BitAccess)",
    "atomic64": "atomic operations on 64 bits (shaderBufferInt64Atomics)",
    "shared64": "atomic operations on 64 bits of shared memory (shaderSharedInt64Atomics)",
    "lanes": "subgroups whose lanes exchange values (shuffle, ballot and vote)",
}
"""Features that programs may need. A target also names some that make code better: those for f32
and f64 `nan`, `rte`, `denormals` (with the width behind), `add32` and `add64`, atomic sums,
`fences`, which drivers that run on the CPU get wrong in loops, and do not need, and `gathers`: it
pays there that lanes which update one place make one update of all. Where there are `whole`
subgroups, the runtime asks for them. One that `fuses` has an instruction that multiplies and adds;
drivers that run on the CPU take it for two, of constants for one. One that `masks` runs both sides
of each branch, as these drivers do. One that `cuts` ends all loops of a thread after some 65,000
turns, which must be told. One that `splits` has 64-bit integers taken apart, of which it gets wrong
what it knows something about."""

_NARROW = "let work items update numbers of 32 bits, such as sums of f32; or use"
_WAYS_OUT = {"atomic64": _NARROW, "shared64": _NARROW}


class Features:
    """The features of a target, for a kernel; `location` is what its code is written for."""

    def __init__(self, target: Target, kernel: str = "") -> None:
        self.device = target.cpu
        self.kernel = kernel
        self.location: Span | None = None
        self._names = target.names()
        blocks = target.blocks
        self.lanes = blocks.subgroup_size if blocks is not None and self.has("lanes") else 1

    def has(self, name: str) -> bool:
        return name in self._names

    def require(self, name: str) -> None:
        """Raise `MissingFeature` unless the device has a feature."""
        if name not in self._names:
            way_out = _WAYS_OUT.get(name, "use other types,")
            missing = MissingFeature(self.kernel, MEANINGS[name], self.device, way_out)
            raise missing.at(self.location)

"""The features of a device that code generation queries, and the error where one is missing."""

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
    "lanes": "subgroups whose lanes exchange values (shuffle and ballot)",
}
"""Features that programs may need.

A target may also name features that improve code: `nan`, `rte`, `denormals` (each with a float
width), `add32` and `add64` (float atomics), `fences` (drivers that run on the CPU get fences in
loops wrong, and do not need them), `gathers` (it pays to combine the updates that lanes make to one
address), `whole` (the runtime can require whole subgroups), and `fuses` (a fused multiply-add:
drivers that run on the CPU split it, and fuse constants). `masks` means that the machine
predicates, as these drivers do. `cuts` means that it ends all loops of a thread after some 65,000
iterations, which the kernel reports, `lanewise` that it accesses memory lane by lane, and that an
i32 holds all offsets in an allocation. `splits` means that the driver gets 64-bit integers wrong
unless their halves are separate, `estimates` that it has good ones of sines, cosines and powers of
two, `selects` that it keeps short arrays of a work item in registers, and selects among them in
each access, `crowds` that it gives threads few registers, so that many fit on a multiprocessor.
`rounds64` means that it rounds f64 right to the nearest whole number and towards zero,
`push256` that a launch pushes 256 bytes.
"""

_NARROW = "let work items update numbers of 32 bits, such as sums of f32; or use"
_WAYS_OUT = {
    "float64": "use f32, such as by `qd.init(default_fp=qd.f32)`; or use",
    "atomic64": _NARROW,
    "shared64": _NARROW,
}


class Features:
    """The features of a target, for a kernel; `location` is the source location of the code."""

    def __init__(self, target: Target, kernel: str = "") -> None:
        self._is_vulkan = target.arch == "vulkan"
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
            meaning = MEANINGS[name] if self._is_vulkan else MEANINGS[name].split(" (")[0]
            missing = MissingFeature(self.kernel, meaning, self.device, way_out)
            raise missing.at(self.location)

"""Identifies the processor without LLVM: equal identities have equal instructions.

LLVM derives the name and the features of a processor from the same sources.
"""

from __future__ import annotations

import ctypes
import platform
import struct
import sys
from collections.abc import Callable, Iterator

from octants.hashing import blake2b
from octants.runtime.cpu.loader.executable import ExecutableMemory
from octants.runtime.cpu.loader.relocations import Refused

# push rbx; mov eax, esi; mov ecx, edx; cpuid; mov [rdi], eax; mov [rdi + 4], ebx;
# mov [rdi + 8], ecx; mov [rdi + 12], edx; pop rbx; ret
_CPUID = bytes.fromhex("5389f089d10fa28907895f04894f0889570c5bc3")
# xor ecx, ecx; xgetbv; mov [rdi], eax; mov [rdi + 4], edx; ret
_XGETBV = bytes.fromhex("31c90f01d08907895704c3")
_XGETBV_AT = 32
_HAS_XGETBV = 1 << 27  # in ECX of leaf 1

_LEAVES = (
    (0, 0, 0b1111),
    (1, 0, 0b1101),  # EBX has the number of the processor that runs this
    *((7, subleaf, 0b1111) for subleaf in range(3)),
    (0xD, 1, 0b0001),
    (0x14, 0, 0b1111),
    (0x19, 0, 0b1111),
    (0x1E, 1, 0b1111),
    (0x24, 0, 0b1111),
    (0x80000000, 0, 0b0001),
    (0x80000001, 0, 0b1111),
    (0x80000007, 0, 0b1111),
    (0x80000008, 0, 0b0010),
    (0x80000021, 0, 0b0001),
)
"""Leaf, subleaf, and which of EAX, EBX, ECX, EDX, the lowest bit first."""

_FIELDS = ("CPU implementer", "CPU architecture", "CPU variant", "CPU part", "Features")


def processor() -> str | None:
    """The identity of this machine's processor; None if it cannot be read."""
    machine = platform.machine().lower()
    read = _READERS.get((sys.platform, machine))
    if read is None or sys.maxsize < 2**32:  # the system may have more bits than this Python
        return None
    try:
        words = [machine, *read()]
    except (OSError, Refused):
        return None
    return blake2b("\n".join(words).encode(), digest_size=16).hexdigest() if words[1:] else None


def _x64() -> Iterator[str]:
    """The results of the instruction ``cpuid``, and the registers that the system saves."""
    memory = ExecutableMemory(4096)
    ctypes.memmove(memory.address, _CPUID, len(_CPUID))
    ctypes.memmove(memory.address + _XGETBV_AT, _XGETBV, len(_XGETBV))
    memory.protect(0, 4096, executable=True)
    number, pointer = ctypes.c_uint32, ctypes.c_void_p
    cpuid = ctypes.CFUNCTYPE(None, pointer, number, number)(memory.address)
    out = (number * 4)()
    highest = 0
    for leaf, subleaf, wanted in _LEAVES:
        if leaf & 0x7FFFFFFF == 0:
            cpuid(ctypes.addressof(out), leaf, 0)
            highest = out[0]
        if leaf > highest:  # then another leaf answers
            continue
        cpuid(ctypes.addressof(out), leaf, subleaf)
        yield repr((leaf, subleaf, *(out[k] for k in range(4) if wanted >> k & 1)))
        if leaf == 1 and out[2] & _HAS_XGETBV:
            ctypes.CFUNCTYPE(None, pointer)(memory.address + _XGETBV_AT)(ctypes.addressof(out))
            yield repr(struct.unpack("<Q", bytes(out)[:8]))


def _arm64() -> Iterator[str]:
    """The processor types that the system lists."""
    with open("/proc/cpuinfo") as file:
        lines = {line.strip() for line in file if line.startswith(_FIELDS)}
    yield from sorted(lines)


_READERS: dict[tuple[str, str], Callable[[], Iterator[str]]] = {
    ("linux", "x86_64"): _x64,
    ("linux", "amd64"): _x64,
    ("linux", "aarch64"): _arm64,
    ("linux", "arm64"): _arm64,
}

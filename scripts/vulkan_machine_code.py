"""Write the machine code that NVIDIA's driver makes of a program's kernels on Vulkan.

    python scripts/vulkan_machine_code.py FOLDER PROGRAM [ARGUMENTS]

It runs a Python program that calls ``init(arch=octants.vulkan)``. Each kernel's text goes to a file
of the folder. The driver's pipeline cache holds the code, compressed by zstd (seen in 580.159);
libzstd, and `nvdisasm` of the CUDA toolkit, have to be there. Local memory shows as LDL and STL.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import re
import runpy
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from octants.runtime.vulkan.pipelines import Pipeline

ZSTD = bytes.fromhex("28b52ffd")
EXIT = bytes.fromhex("4d79000000000000")
"""The first half of an EXIT without a predicate, which each kernel has."""
STEP = 16
"""The bytes of an instruction."""
ARCHITECTURE = "SM90"
"""That of an H100 or H200."""


def main() -> None:
    """Run the program of the command line, and write the code of each pipeline."""
    folder, program = Path(sys.argv[1]), sys.argv[2]
    folder.mkdir(parents=True, exist_ok=True)
    make = Pipeline._make

    def make_and_write(self: Pipeline, module: int, known: bytes) -> bytes:
        data = make(self, module, known)
        for number, code in enumerate(codes(data)):
            artifact: Any = self._artifact
            path = folder / f"{artifact.kernel or artifact.name}.{number}.txt"
            path.write_text(disassemble(code))
            print(path)
        return data

    Pipeline._make = make_and_write  # type: ignore[method-assign]
    sys.argv = sys.argv[2:]
    runpy.run_path(program, run_name="__main__")


def codes(data: bytes) -> Iterator[bytes]:
    """The machine code in a pipeline cache, with what may stand before and behind it."""
    for frame in re.finditer(re.escape(ZSTD), data):
        whole = decompressed(data[frame.start() :])
        exits = [found.start() for found in re.finditer(re.escape(EXIT), whole)]
        if exits:
            start = end = exits[0]
            while start >= STEP and is_instruction(whole, start - STEP):
                start -= STEP
            while end + STEP <= len(whole) and is_instruction(whole, end):
                end += STEP
            yield whole[start:end]


def is_instruction(whole: bytes, offset: int) -> bool:
    """Whether bytes may be an instruction: the upper bits schedule it, and are not all zero."""
    low, high = struct.unpack_from("<QQ", whole, offset)
    return bool(low and not high >> 62 and high >> 41)


def decompressed(data: bytes) -> bytes:
    """The contents of the frame at the start of some bytes; empty if it is none."""
    zstd = ctypes.CDLL(ctypes.util.find_library("zstd") or "libzstd.so.1")
    zstd.ZSTD_getFrameContentSize.restype = ctypes.c_ulonglong
    zstd.ZSTD_findFrameCompressedSize.restype = ctypes.c_size_t
    zstd.ZSTD_decompress.restype = ctypes.c_size_t
    length = zstd.ZSTD_findFrameCompressedSize(data, ctypes.c_size_t(len(data)))
    size = zstd.ZSTD_getFrameContentSize(data, ctypes.c_size_t(len(data)))
    if length > len(data) or size > 1 << 28:
        return b""
    result = ctypes.create_string_buffer(size)
    given = ctypes.c_size_t(size), data, ctypes.c_size_t(length)
    return result.raw if zstd.ZSTD_decompress(result, *given) == size else b""


def disassemble(code: bytes) -> str:
    """The text of machine code; what `nvdisasm` does not know at either end is left out."""
    start, end = 0, len(code)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "code"
        while True:
            file.write_bytes(code[start:end])
            command = ["nvdisasm", "--binary", ARCHITECTURE, str(file)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            unknown = re.search(r"address (0x[0-9a-f]+)", done.stderr)
            if done.returncode == 0 or unknown is None:
                return done.stdout or done.stderr
            position = int(unknown[1], 16)
            if position < (end - start) // 4:
                start += STEP + position
            else:
                end = start + position


if __name__ == "__main__":
    main()

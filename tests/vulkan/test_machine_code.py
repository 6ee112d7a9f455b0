"""`scripts/vulkan_machine_code.py` finds the code in the data of a driver."""

from __future__ import annotations

import ctypes
import ctypes.util
import runpy
import struct
import subprocess
from pathlib import Path
from typing import Any

import pytest

SCRIPT = runpy.run_path(str(Path(__file__).parents[2] / "scripts" / "vulkan_machine_code.py"))
ADD, EXIT = (struct.pack("<QQ", low, 0x3FEA0 << 44 >> 4) for low in (0x7210, 0x794D))


def _compressed(data: bytes) -> bytes:
    name = ctypes.util.find_library("zstd")
    if name is None:
        pytest.skip("there is no libzstd")
    zstd = ctypes.CDLL(name)
    zstd.ZSTD_compress.restype = ctypes.c_size_t
    result = ctypes.create_string_buffer(len(data) + 1000)
    size = zstd.ZSTD_compress(
        result, ctypes.c_size_t(len(result)), data, ctypes.c_size_t(len(data)), 3
    )
    return result.raw[:size]


def test_code_is_found() -> None:
    code = 5 * ADD + EXIT + 2 * ADD
    whole = b"\1" * 48 + bytes(16) + code + bytes(32) + b"the end"
    data = b"head" * 25 + _compressed(whole) + b"tail" + _compressed(b"no code" * 9)
    assert list(SCRIPT["codes"](data)) == [code]
    assert list(SCRIPT["codes"](SCRIPT["ZSTD"] + b"no frame")) == []


def test_what_is_no_code_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The disassembler names the address of the first thing that it does not know."""

    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        found = Path(command[-1]).read_bytes()
        parts = [found[k : k + 16] for k in range(0, len(found), 16)]
        for number, part in enumerate(parts):
            if part not in (ADD, EXIT):
                return subprocess.CompletedProcess(command, 1, "", f"at address {16 * number:#x}")
        return subprocess.CompletedProcess(command, 0, f"{len(parts)} instructions", "")

    monkeypatch.setattr(subprocess, "run", run)
    strange = struct.pack("<QQ", 1, 1 << 50)
    assert SCRIPT["disassemble"](2 * strange + 20 * ADD + EXIT + 3 * strange) == "21 instructions"

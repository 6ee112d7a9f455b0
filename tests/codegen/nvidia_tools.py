"""NVIDIA's assembler and disassembler, which make machine code of PTX, and text of that."""

from __future__ import annotations

import shutil
import sysconfig
from pathlib import Path

import pytest


def tool(name: str) -> str | None:
    """The path of a program of NVIDIA's wheels, or of an installed toolkit."""
    packages = Path(sysconfig.get_path("purelib"))
    found = sorted(packages.glob(f"nvidia/*/bin/{name}"))
    return str(found[0]) if found else shutil.which(name)


needs_assembler = pytest.mark.skipif(
    tool("ptxas") is None, reason="there is no ptxas: pip install nvidia-cuda-nvcc-cu12"
)
needs_disassembler = pytest.mark.skipif(
    tool("nvdisasm") is None, reason="there is no nvdisasm: pip install nvidia-cuda-nvdisasm"
)

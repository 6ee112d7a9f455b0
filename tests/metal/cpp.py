"""Compiles the text of kernels for Metal as C++, and runs their threads on the CPU."""

from __future__ import annotations

import atexit
import ctypes
import functools
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
_CLANGS = ("clang++", "clang++-22", "clang++-19", "clang++-16", "clang++-14")
_COMPILERS = ("g++", *_CLANGS)
_FLAGS = "-shared -fPIC -w -ffp-contract=off -fno-strict-aliasing -fwrapv -fsigned-char".split()
_KERNEL = "-O0 -nostdlib"  # which compiles in half the time of -O1, and runs fast enough for tests
INCLUDE = f"-I{HERE / 'include'}"
ENTRY = re.compile(r"\[\[kernel, [^\]]*\]\]")
SHARED = re.compile(r"^( +)threadgroup (ulong shared\[)", re.MULTILINE)
_EXCHANGE = re.compile(r"simd_|_barrier\(")


@functools.cache
def _folder() -> Path:
    """Where libraries are: kept between runs if a variable names a folder."""
    kept = os.environ.get("OCTANTS_TEST_METAL_CACHE")
    if not kept:
        made = tempfile.TemporaryDirectory(prefix="octants-metal-")
        atexit.register(made.cleanup)
        return Path(made.name)
    path = Path(kept)
    path.mkdir(parents=True, exist_ok=True)
    return path


def compiler() -> str | None:
    """A compiler of C++, if there is one."""
    return next(filter(None, map(shutil.which, _COMPILERS)), None)


def clang() -> str | None:
    """A compiler that knows address spaces, if there is one."""
    return next(filter(None, map(shutil.which, _CLANGS)), None)


def need_compiler() -> str:
    """A compiler; the test is skipped where there is none."""
    found = compiler()
    if found is None:
        pytest.skip("no g++ or clang++ here to compile kernels for Metal as C++")
    return found


def built(name: str, source: str, flags: list[str]) -> Path:
    """The library of a source, compiled when it is first asked for."""
    key = hashlib.sha256((source + " ".join(flags)).encode()).hexdigest()[:32]
    path = _folder() / f"{name}-{key}.so"
    if not path.exists():
        part = path.with_suffix(f".{os.getpid()}")
        command = [need_compiler(), *_FLAGS, *flags, INCLUDE, "-x", "c++", "-", "-lgcc"]
        command += ["-o", str(part)]
        done = subprocess.run(command, input=source, capture_output=True, text=True, check=False)
        if done.returncode:
            raise AssertionError(f"{done.stderr[:4000]}\n{source[:20000]}")
        part.rename(path)
    return path


@functools.cache
def fibres() -> Any:
    """What runs threads of blocks, for Metal and for CUDA; it keeps the lock of Python."""
    source = (HERE.parent / "codegen" / "fibres.cpp").read_text()
    # Some compilers define the last one by default, others do not: here all of them do.
    path = built("fibres", source, ["-O2", "-std=c++14", "-D_FORTIFY_SOURCE=2"])
    library = ctypes.PyDLL(str(path), ctypes.RTLD_GLOBAL)
    library.run_dispatch.restype = library.run_grid.restype = ctypes.c_char_p
    return library


_HEADER = (HERE / "include" / "metal_stdlib").read_text()


def as_cpp(text: str) -> str:
    """The text as C++: entry points have names for the linker, what a block shares is static."""
    return SHARED.sub(r"\1static \2", ENTRY.sub('extern "C"', text))


class CppLibrary:
    """The kernels of a text of Metal."""

    def __init__(self, text: str) -> None:
        emulator = fibres()
        self.key = hashlib.sha256(text.encode()).hexdigest()[:16]
        given = os.environ.get("OCTANTS_TEST_METAL_FLAGS", _KERNEL).split()
        version = hashlib.sha256(_HEADER.encode()).hexdigest()[:8]
        flags = [*given, "-std=c++14", f"-DVERSION_{version}"]
        self._library = ctypes.CDLL(str(built("kernel", as_cpp(text), flags)))
        self._run, self._exchanges = emulator.run_dispatch, bool(_EXCHANGE.search(text))

    def has(self, name: str) -> bool:
        """Whether there is a kernel of a name."""
        return hasattr(self._library, name)

    def run(self, name: str, words: bytes, blocks: int, threads: int) -> None:
        """Run a kernel with the words of a launch."""
        entry = ctypes.cast(getattr(self._library, name), ctypes.c_void_p)
        problem = self._run(entry, words, blocks, threads, self._exchanges)
        assert not problem, problem.decode()

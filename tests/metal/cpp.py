"""Compiles the text of kernels for Metal as C++, and runs their threads on the CPU."""

from __future__ import annotations

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
_COMPILERS = ("g++", "clang++", "clang++-14", "clang++-16", "clang++-19")
_CLANGS = tuple(name for name in _COMPILERS if "clang" in name)
_FLAGS = "-shared -fPIC -w -ffp-contract=off -fno-strict-aliasing -fwrapv -fsigned-char".split()
_ENTRY = re.compile(r"\[\[kernel, [^\]]*\]\]")
_SHARED = re.compile(r"^( +)threadgroup (ulong shared\[)", re.MULTILINE)
_EXCHANGE = re.compile(r"simd_|_barrier\(")


@functools.cache
def _folder() -> Path:
    """Where libraries are: kept between runs if a variable names a folder."""
    kept = os.environ.get("OCTANTS_TEST_METAL_CACHE")
    path = Path(kept) if kept else Path(tempfile.mkdtemp(prefix="octants-metal-"))
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
        include = f"-I{HERE / 'include'}"
        command = [need_compiler(), *_FLAGS, *flags, include, "-x", "c++", "-", "-o", str(part)]
        done = subprocess.run(command, input=source, capture_output=True, text=True, check=False)
        if done.returncode:
            raise AssertionError(f"{done.stderr[:4000]}\n{source[:20000]}")
        part.rename(path)
    return path


@functools.cache
def _emulator() -> Any:
    path = built("emulator", (HERE / "emulator.cpp").read_text(), ["-O2", "-std=c++14"])
    library = ctypes.CDLL(str(path), ctypes.RTLD_GLOBAL)
    library.run_dispatch.restype = ctypes.c_char_p
    return library


_HEADER = (HERE / "include" / "metal_stdlib").read_text()


def as_cpp(text: str) -> str:
    """The text as C++: entry points have names for the linker, what a block shares is static."""
    return _SHARED.sub(r"\1static \2", _ENTRY.sub('extern "C"', text))


class CppLibrary:
    """The kernels of a text of Metal."""

    def __init__(self, text: str) -> None:
        emulator = _emulator()
        level = os.environ.get("OCTANTS_TEST_METAL_FLAGS", "-O1")
        version = hashlib.sha256(_HEADER.encode()).hexdigest()[:8]
        flags = [level, "-std=c++14", f"-DVERSION_{version}"]
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


def check_address_spaces(text: str) -> None:
    """Let clang check the text, with an address space for each of Metal's; nothing is run."""
    found = clang()
    if found is None:
        pytest.skip("no clang++ here, which checks address spaces")
    source = _ENTRY.sub('extern "C"', text)
    source = _SHARED.sub(r"\1static \2", source).replace(
        "static ulong shared", "static threadgroup ulong shared"
    )
    command = [found, "-fsyntax-only", "-std=c++14", "-w", "-DCHECK_ADDRESS_SPACES"]
    command += [f"-I{HERE / 'include'}", "-x", "c++", "-"]
    done = subprocess.run(command, input=source, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:4000]

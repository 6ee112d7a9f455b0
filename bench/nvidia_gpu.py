"""What programs by hand need of an NVIDIA GPU: a compiler of CUDA, and the driver."""

from __future__ import annotations

import ctypes
import importlib.util
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint, c_uint64, c_void_p
from pathlib import Path
from typing import Any

FAST = ("-use_fast_math", "--std=c++17")
EXACT = ("--std=c++17", "-DREAL=double")


class Missing(Exception):
    """There is no compiler, no driver or no GPU; the text says which."""


def compile_source(source: Path, arch: str, flags: tuple[str, ...]) -> bytes:
    """A cubin, by nvcc where it is found, otherwise by NVRTC; ``arch`` is like ``sm_90``."""
    if shutil.which("nvcc"):
        return _by_nvcc(source, arch, flags)
    return _by_nvrtc(source, arch, flags)


def compiler() -> str:
    """The compiler that there is, with its version."""
    program = shutil.which("nvcc")
    if program:
        said = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
        release = next(line for line in said.stdout.splitlines() if "release" in line)
        return f"nvcc {release.split('release ')[1].split(',')[0]}"
    major, minor = c_int(), c_int()
    nvrtc().nvrtcVersion(byref(major), byref(minor))
    return f"NVRTC {major.value}.{minor.value}"


def _by_nvcc(source: Path, arch: str, flags: tuple[str, ...]) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "reference.cubin"
        command = ["nvcc", f"-arch={arch}", "-cubin", *flags, str(source), "-o", str(output)]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if result.returncode:
            raise Missing(f"nvcc: {result.stderr.strip()[:200]}")
        return output.read_bytes()


def nvrtc() -> ctypes.CDLL:
    """NVIDIA's compiler as a library: that of the system, or of a package."""
    names = [f"libnvrtc.so.{version}" for version in (13, 12)]
    specification = importlib.util.find_spec("nvidia")
    roots = list(specification.submodule_search_locations or ()) if specification else []
    found = [path for root in roots for path in sorted(Path(root).glob("*/lib/libnvrtc.so.*"))]
    for name in [*names, *map(str, found)]:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise Missing("neither nvcc nor NVRTC")


def _by_nvrtc(source: Path, arch: str, flags: tuple[str, ...]) -> bytes:
    library, program = nvrtc(), c_void_p()
    text, name = source.read_bytes(), source.name.encode()
    library.nvrtcCreateProgram(byref(program), text, name, 0, None, None)
    options = [f"-arch={arch}", f"-I{source.parent}", *flags]
    array = (c_char_p * len(options))(*(option.encode() for option in options))
    if library.nvrtcCompileProgram(program, len(options), array):
        log = _text(library.nvrtcGetProgramLogSize, library.nvrtcGetProgramLog, program)
        raise Missing(f"NVRTC: {log.decode()[:200]}")
    return _text(library.nvrtcGetCUBINSize, library.nvrtcGetCUBIN, program)


def _text(size_of: Any, get: Any, program: c_void_p) -> bytes:
    size = c_size_t()
    size_of(program, byref(size))
    buffer = ctypes.create_string_buffer(size.value)
    get(program, buffer)
    return buffer.raw


class Gpu:
    """The first GPU: its memory, its kernels, and the queue of what it is to do."""

    def __init__(self) -> None:
        try:
            self.driver = ctypes.CDLL("libcuda.so.1")
        except OSError:
            raise Missing("no NVIDIA driver") from None
        device, context = c_int(), c_void_p()
        self.call("cuInit", 0)
        self.call("cuDeviceGet", byref(device), 0)
        self.call("cuDevicePrimaryCtxRetain", byref(context), device)
        self.call("cuCtxSetCurrent", context)
        self.device = device
        self.stream = c_void_p()
        self.call("cuStreamCreate", byref(self.stream), 1)  # apart from the default stream

    def call(self, name: str, *arguments: Any) -> None:
        """A function of the driver."""
        status = getattr(self.driver, name)(*arguments)
        if status:
            raise Missing(f"{name}: error {status}")

    @property
    def name(self) -> str:
        """What the GPU calls itself."""
        buffer = ctypes.create_string_buffer(100)
        self.call("cuDeviceGetName", buffer, 100, self.device)
        return buffer.value.decode()

    @property
    def arch(self) -> str:
        """Its architecture, like ``sm_90``."""
        return f"sm_{self._attribute(75)}{self._attribute(76)}"

    def _attribute(self, which: int) -> int:
        value = c_int()
        self.call("cuDeviceGetAttribute", byref(value), which, self.device)
        return value.value

    @property
    def driver_version(self) -> str:
        """The newest version of CUDA that the driver knows."""
        value = c_int()
        self.call("cuDriverGetVersion", byref(value))
        return f"CUDA {value.value // 1000}.{value.value % 1000 // 10}"

    def load(self, cubin: bytes) -> c_void_p:
        """A module."""
        module = c_void_p()
        self.call("cuModuleLoadData", byref(module), cubin)
        return module

    def function(self, module: c_void_p, name: str) -> c_void_p:
        """A kernel of a module."""
        function = c_void_p()
        self.call("cuModuleGetFunction", byref(function), module, name.encode())
        return function

    def allocate(self, nbytes: int) -> int:
        """The address of so much memory, of zeros."""
        address = c_uint64()
        self.call("cuMemAlloc_v2", byref(address), c_size_t(nbytes))
        self.fill(address.value, nbytes)
        return address.value

    def free(self, address: int) -> None:
        """Give memory back."""
        self.call("cuMemFree_v2", c_uint64(address))

    def fill(self, address: int, nbytes: int) -> None:
        """Zeros."""
        self.call("cuMemsetD8Async", c_uint64(address), 0, c_size_t(nbytes), self.stream)

    def write(self, address: int, array: Any) -> None:
        """Copy an array of numpy there."""
        self.sync()
        data, nbytes = c_void_p(array.ctypes.data), c_size_t(array.nbytes)
        self.call("cuMemcpyHtoD_v2", c_uint64(address), data, nbytes)

    def read(self, address: int, array: Any) -> None:
        """Copy what is there into an array of numpy."""
        self.sync()
        data, nbytes = c_void_p(array.ctypes.data), c_size_t(array.nbytes)
        self.call("cuMemcpyDtoH_v2", data, c_uint64(address), nbytes)

    def launcher(
        self, function: c_void_p, grid: int, block: int, work: ctypes.Structure
    ) -> Callable[[], None]:
        """A call that queues a kernel; ``work`` is read when it is called."""
        run = self.driver.cuLaunchKernel
        pointers = (ctypes.POINTER(type(work)) * 1)(ctypes.pointer(work))  # which keeps it
        arguments = (function, *map(c_uint, (grid, 1, 1, block, 1, 1, 0)), self.stream, pointers)

        def launch() -> None:
            status = run(*arguments, None)
            if status:
                raise Missing(f"cuLaunchKernel: error {status}")

        return launch

    def sync(self) -> None:
        """Wait until all is done."""
        self.call("cuStreamSynchronize", self.stream)

    @contextmanager
    def captured(self) -> Iterator[list[Callable[[], None]]]:
        """A graph of what is queued in the block: the list gets a call that launches it."""
        graph, ready, result = c_void_p(), c_void_p(), list[Callable[[], None]]()
        self.call("cuStreamBeginCapture_v2", self.stream, 2)
        yield result
        self.call("cuStreamEndCapture", self.stream, byref(graph))
        self.call("cuGraphInstantiateWithFlags", byref(ready), graph, c_uint64(0))
        result.append(lambda: self.call("cuGraphLaunch", ready, self.stream))

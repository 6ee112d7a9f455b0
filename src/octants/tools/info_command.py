"""The command `info`: versions, processor, optional packages."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
from collections.abc import Iterator

import llvmlite.binding as llvm

from octants.backends.table import backend_of
from octants.codegen.llvm.cpu import host_target
from octants.codegen.llvm.lanes.vector_capabilities import lanes_of_target
from octants.options import default_cache_directory
from octants.target import Arch
from octants.version import __version__


def lines() -> Iterator[str]:
    """The lines of ``python -m octants info``."""
    features = llvm.get_host_cpu_features()
    known = ("avx512f", "avx2", "avx", "sse4.2", "neon", "sve")
    yield f"octants    {__version__}"
    yield f"python     {platform.python_version()} ({platform.python_implementation()})"
    yield f"system     {platform.platform()}"
    yield f"processor  {llvm.get_host_cpu_name()}, {threads()} threads"
    yield f"simd       {', '.join(name for name in known if features.get(name)) or 'unknown'}"
    yield f"lanes      {lanes()}"
    version = ".".join(map(str, llvm.llvm_version_info))
    yield f"llvm       {version}, by llvmlite {importlib.metadata.version('llvmlite')}"
    yield from devices()
    yield f"cache      {default_cache_directory()}"
    yield f"numpy      {importlib.metadata.version('numpy')}"
    for extra, packages in extras().items():
        states = (f"{name} {installed(name) or 'missing'}" for name in packages)
        yield f"[{extra}]".ljust(11) + ", ".join(states)


def devices() -> Iterator[str]:
    """A line for each kind of GPU: the devices with their numbers, or what keeps them from use."""
    for arch in (Arch.cuda, Arch.amdgpu, Arch.vulkan, Arch.metal):
        backend = backend_of(arch.name)
        obstacle = backend.obstacle()
        names = () if obstacle else backend.device_names()
        found = ", ".join(f"{number}: {name}" for number, name in enumerate(names))
        yield arch.name.ljust(11) + (found or f"none: {obstacle}")


def lanes() -> str:
    """The lanes in which parallel loops run where that pays."""
    count = lanes_of_target(host_target())
    if not count:
        return "none that can be relied on: work items run one by one"
    return f"{count} of 32 bits in a vector"


def threads() -> int:
    """How many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def extras() -> dict[str, list[str]]:
    """The optional dependencies by the extra that installs them, if Octants is installed."""
    result: dict[str, list[str]] = {}
    try:
        requirements = importlib.metadata.requires("octants") or ()
    except importlib.metadata.PackageNotFoundError:
        return result
    for requirement in requirements:
        extra = re.search(r"extra\s*==\s*['\"]([\w-]+)['\"]", requirement)
        name = re.match(r"[\w.-]+", requirement)
        if extra and name:
            result.setdefault(extra[1], []).append(name[0])
    return result


def installed(package: str) -> str:
    """The version of a package, or nothing."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""

"""The page on the architecture is true of launches: its names exist, and its paths are taken."""

from __future__ import annotations

import itertools
import re
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import octants as qd
from octants.lowering import replacement_blocks
from tests.page_paths import (
    TEXT,
    calls_of,
    check_path,
    compile_as_file,
    paths_of,
    program_of,
    resolve,
    section_of,
)
from tests.runtime.cuda.whole import Gpu
from tests.runtime.cuda.whole import gpu as gpu

SECTION = section_of("A launch")
ON_CPU, ON_GPU = paths_of(SECTION)
SHARED = ON_CPU[: ON_CPU.index("driver.compile_module") + 1]
PACKAGES = (
    "ad|algorithms|analysis|api|artifact|autodiff|backends|cache|codegen|data|driver|frontend|graph"
    "|fuzz|interpreter|ir|lang|launch|linalg|block_interpreter|lowering|mathlib|passes|pipeline|runtime"
    "|simplify|target|types"
)
_numbers = itertools.count()
NAMES = sorted(set(re.findall(rf"`((?:{PACKAGES})(?:\.(?!py`)\w+)+)`", TEXT)))
WARM = ["launch.kernel.Kernel.__call__", "entry", "launch", "runtime.cpu.device.CpuKernel.launch"]

names_calls = pytest.mark.skipif(sys.version_info < (3, 11), reason="code has no qualified names")


def test_the_page_has_the_section() -> None:
    assert len(ON_CPU) > 20
    assert len(ON_GPU) > 5


def test_the_names_of_the_page_exist() -> None:
    assert len(NAMES) > 150
    for name in NAMES:
        resolve(name)


def test_the_members_that_the_page_names_exist() -> None:
    prose = re.sub(r"```.*?```", "", TEXT, flags=re.DOTALL)
    members = sorted(set(re.findall(r"`([A-Z]\w+)\.(\w+)`", prose)))
    assert len(members) > 20
    texts = [path.read_text() for path in Path(qd.__file__).parent.rglob("*.py")]
    for owner, name in members:
        declared = rf"def {name}\b|^\s+{name}\s*[:=]|self\.{name}\b"
        files = [text for text in texts if re.search(rf"^class {owner}\b", text, re.MULTILINE)]
        assert any(re.search(declared, text, re.MULTILINE) for text in files), f"{owner}.{name}"


def test_the_files_of_a_weekend_exist() -> None:
    """The page says how many they are, and how long; some hundred lines more make no difference."""
    reading, package = section_of("A weekend"), Path(qd.__file__).parent
    files = re.findall(r"`([\w/]+\.py)`", reading)
    lines = sum(len((package / file).read_text().splitlines()) for file in files)
    ((count, said),) = re.findall(r"These (\d+), about ([\d,]+) lines", reading)
    assert len(files) == int(count)
    assert abs(lines - int(said.replace(",", ""))) < 500, lines
    (of,) = re.findall(r"Octants has (\d+) files", reading)
    assert abs(len([*package.rglob("*.py")]) - int(of)) < 40


def made(init: Callable[[], None]) -> Callable[[], None]:
    """The launch of the section, when everything before it has run."""
    init()
    text = program_of(SECTION).replace("qd.init(arch=qd.cpu)", "")
    (kernel,) = re.findall(r"@qd.kernel\ndef (\w+)\(", text)
    text = text.replace(kernel, f"{kernel}_{next(_numbers)}")  # code is kept in a process by names
    lines = text.rstrip().splitlines()
    scope: dict[str, Any] = {"qd": qd}
    exec(compile_as_file("\n".join(lines[:-1])), scope)
    launch = compile(lines[-1], "<launch>", "exec")
    return lambda: exec(launch, scope)


def on_cpu() -> None:
    replacement_blocks.function.cache_clear()
    qd.init(arch=qd.cpu, offline_cache=False, log_level="error")


@names_calls
def test_a_first_launch_takes_the_path_of_the_page() -> None:
    check_path(ON_CPU, calls_of(made(on_cpu)))


@names_calls
def test_a_warm_launch_calls_four_functions() -> None:
    launch = made(on_cpu)
    launch()
    launch()
    assert calls_of(launch) == WARM


@pytest.fixture
def idle_gpu(gpu: Gpu) -> Gpu:
    """A fake GPU whose kernels do nothing."""
    gpu.fake.kernels = defaultdict(lambda: lambda call: None, gpu.fake.kernels)
    return gpu


@names_calls
def test_a_first_launch_on_a_gpu_takes_the_path_of_the_page(idle_gpu: Gpu) -> None:
    called = calls_of(made(idle_gpu.init))
    check_path([*SHARED, *ON_GPU], called)
    assert not [name for name in called if name.startswith("codegen.llvm.cpu")]


@names_calls
def test_a_warm_launch_on_a_gpu_makes_nothing(idle_gpu: Gpu) -> None:
    launch = made(idle_gpu.init)
    launch()
    launch()
    called = calls_of(launch)
    assert called[:3] == WARM[:3]
    assert {name.rpartition(".<locals>")[0] for name in called[3:]} >= {
        "runtime.cuda.fast_launcher.make_launcher"
    }
    assert not [
        n for n in called if n.startswith(("codegen.", "pipeline.", "frontend.", "driver."))
    ]

"""Code is for one processor: which one it is is determined without LLVM, and exactly."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import octants as qd
from octants.backends import cpu
from octants.codegen.llvm import llvmlite_driver
from octants.runtime.cpu import processor_identity
from octants.runtime.cpu.loader.relocations import Refused

KNOWN = (sys.platform, platform.machine().lower()) in processor_identity._READERS
on_known = pytest.mark.skipif(not KNOWN, reason="this processor has no identity")
on_x64 = pytest.mark.skipif(
    processor_identity._READERS.get((sys.platform, platform.machine().lower()))
    is not processor_identity._x64,
    reason="for x64",
)


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """A list that grows when LLVM is asked which processor this is; with an empty cache."""
    found: list[str] = []
    ask = llvmlite_driver.host_target

    def counted() -> Any:
        found.append("asked")
        return ask()

    monkeypatch.setattr(llvmlite_driver, "host_target", counted)
    cpu.host_target.cache_clear()
    qd.init(arch=qd.cpu, offline_cache=True, offline_cache_file_path=str(tmp_path))
    yield found
    cpu.host_target.cache_clear()
    qd.reset()


def again() -> Any:
    """What another process would find out."""
    cpu.host_target.cache_clear()
    return cpu.host_target()


@on_known
def test_a_processor_is_recognised(asked: list[str]) -> None:
    expected = llvmlite_driver.host_target()
    asked.clear()
    assert again() == expected
    assert asked == ["asked"]
    assert again() == expected
    assert asked == ["asked"]


@on_known
def test_another_processor_is_looked_at_anew(
    asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    again()
    read = processor_identity._READERS[sys.platform, platform.machine().lower()]
    key = (sys.platform, platform.machine().lower())
    lines = list(read())
    for number, line in enumerate(lines):
        changed = [*lines[:number], line + "0", *lines[number + 1 :]]
        monkeypatch.setitem(processor_identity._READERS, key, lambda changed=changed: iter(changed))
        asked.clear()
        again()
        assert asked == ["asked"], line


@pytest.mark.parametrize("error", [Refused, OSError])
def test_without_an_identity_nothing_is_kept(
    error: type[Exception], asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> Iterator[str]:
        raise error("not here")
        yield ""

    key = (sys.platform, platform.machine().lower())
    monkeypatch.setitem(processor_identity._READERS, key, fail)
    assert processor_identity.processor() is None
    for count in (1, 2):
        again()
        assert len(asked) == count


@on_known
def test_an_identity_does_not_change() -> None:
    assert len({processor_identity.processor() for _ in range(20)}) == 1


@on_x64
def test_the_processor_says_what_llvm_says() -> None:
    """EBX of leaf 7, of which LLVM's features are bits."""
    leaves = {eval(line)[:2]: eval(line)[2:] for line in processor_identity._x64()}
    features = llvmlite_driver.host_target().features.split(",")
    for name, bit in {"bmi": 3, "avx2": 5, "bmi2": 8, "avx512f": 16, "avx512vl": 31}.items():
        assert bool(leaves[7, 0][1] >> bit & 1) == (f"+{name}" in features), name

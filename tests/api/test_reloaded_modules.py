"""Modules that are loaded again after a change, as notebooks do: kernels follow, as Python does."""

from __future__ import annotations

import importlib
import sys
import types
from pathlib import Path
from typing import Any

import pytest

import octants as qd

TEXT = """
import octants as qd

@qd.func
def shifted(a):
    return a + 1

def doubled(a):
    return a * 2

@qd.kernel
def both(n: qd.i32) -> qd.i32:
    return shifted(n) + doubled(n)
"""
CHANGED = TEXT.replace("a + 1", "a + 100").replace("a * 2", "a * 3")


@pytest.mark.parametrize("way", ["reload", "reload and patch", "patch"])
def test_kernels_follow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    """IPython's autoreload gives functions new code, in newer versions without a reload."""
    qd.init(arch=qd.python)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setitem(sys.modules, "IPython.extensions.autoreload", sys)
    file = tmp_path / f"simulation_by_{way.replace(' ', '_')}.py"
    file.write_text(TEXT)
    module: Any = importlib.import_module(file.stem)
    shifted, doubled, both = module.shifted, module.doubled, module.both

    @qd.kernel
    def call(n: qd.i32) -> qd.i32:
        return shifted(n) + 10 * doubled(n) + 1000 * module.shifted(n)

    assert (call(1), both(1)) == (2022, 4)
    file.write_text(CHANGED)
    now = module
    if way == "patch":
        now = types.ModuleType(file.stem)
        for text in CHANGED.split("\n\n")[1:3]:
            exec(compile(text, str(file), "exec"), vars(module), vars(now))
    else:
        importlib.invalidate_caches()
        importlib.reload(module)
    if way != "reload":
        _patch(shifted, now.shifted)
        _patch(doubled, now.doubled)
    assert call(1) == (101022 if way == "reload" else 101131)
    assert (both(1), module.both(1)) == (104, 104)


def _patch(before: types.FunctionType, now: types.FunctionType) -> None:
    before.__code__ = now.__code__
    before.__dict__.update(now.__dict__)

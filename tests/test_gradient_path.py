"""The page on the architecture is true of gradients: its names exist, and its path is taken."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import Any

import pytest

import octants as qd
from tests.page_paths import (
    calls_of,
    check_path,
    compile_as_file,
    paths_of,
    program_of,
    resolve,
    section_of,
)

SECTION = section_of("A gradient")
(PATH,) = paths_of(SECTION)
PACKAGES = "ad|analysis|autodiff|codegen|data|driver|launch|passes|pipeline|runtime"
NAMES = sorted(set(re.findall(rf"`((?:{PACKAGES})(?:\.\w+)+)`", SECTION)))

names_calls = pytest.mark.skipif(sys.version_info < (3, 11), reason="code has no qualified names")


def test_the_page_has_the_section() -> None:
    assert len(PATH) > 20
    assert len(NAMES) > 60


@pytest.mark.parametrize("name", NAMES)
def test_a_name_of_the_section_exists(name: str) -> None:
    resolve(name)


@pytest.fixture
def gradient() -> Callable[[], None]:
    """The program of the section."""
    qd.init(arch=qd.cpu, offline_cache=False)
    definitions, tape, body = program_of(SECTION).partition("with qd.ad.Tape")
    scope: dict[str, Any] = {"qd": qd}
    exec(compile_as_file(definitions.replace("qd.init(arch=qd.cpu)", "")), scope)
    return lambda: exec(tape + body, scope)


@names_calls
def test_a_first_gradient_takes_the_path_of_the_page(gradient: Callable[[], None]) -> None:
    check_path(PATH, calls_of(gradient))


@names_calls
def test_a_second_gradient_makes_nothing(gradient: Callable[[], None]) -> None:
    gradient()
    called = calls_of(gradient)
    assert "ad.tapes.tape_entries.LaunchEntry.reverse" in called
    assert not [name for name in called if name.startswith(("autodiff.", "pipeline."))]

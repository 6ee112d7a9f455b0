"""Drivers that are not all of Vulkan, such as MoltenVK: the loader lists them only on request."""

from __future__ import annotations

import copy
from ctypes import cast, pointer
from typing import Any

import pytest

from octants.runtime.vulkan import physical_devices
from octants.runtime.vulkan import structures as vk
from octants.runtime.vulkan.physical_devices import (
    PORTABLE_DRIVERS,
    PORTABLE_SUBSET,
    used_extensions,
)
from tests.vulkan import compiled


class Stopped(Exception):
    """Raised in place of the call that makes an instance."""


def asked_for(offered: set[bytes], monkeypatch: pytest.MonkeyPatch) -> tuple[int, list[bytes]]:
    """The flags and the extensions of the instance that is made."""
    given = physical_devices.global_function
    seen: list[tuple[int, list[bytes]]] = []

    def create(place: Any, *_: Any) -> int:
        info = cast(place, type(pointer(vk.InstanceCreateInfo()))).contents
        names = [info.extensions[k] for k in range(info.extension_count)]
        seen.append((info.flags, names))
        raise Stopped

    def find(name: str, *kinds: Any) -> Any:
        return create if name == "vkCreateInstance" else given(name, *kinds)

    monkeypatch.setattr(physical_devices, "global_function", find)
    monkeypatch.setattr(physical_devices, "_instance_extensions", lambda: frozenset(offered))
    with pytest.raises(Stopped):
        physical_devices._make_instance()
    return seen[0]


def test_portable_drivers_are_asked_for_where_the_loader_knows_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compiled.device()
    assert asked_for({b"VK_KHR_surface", PORTABLE_DRIVERS}, monkeypatch) == (1, [PORTABLE_DRIVERS])


def test_others_are_asked_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled.device()
    assert asked_for({b"VK_KHR_surface"}, monkeypatch) == (0, [])


def test_a_portable_device_is_told_that_we_know() -> None:
    hardware = copy.copy(compiled.device().hardware)
    assert PORTABLE_SUBSET not in used_extensions(hardware)
    hardware.extensions |= {PORTABLE_SUBSET}
    assert used_extensions(hardware)[-1] == PORTABLE_SUBSET


def test_extensions_of_instances_are_read() -> None:
    compiled.device()
    found = physical_devices._instance_extensions()
    assert b"VK_KHR_get_physical_device_properties2" in found

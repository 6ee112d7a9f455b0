"""The text of each error of Vulkan as a golden file, and what raises them."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys

import pytest

from octants.diagnostics import vulkan_errors as errors
from octants.diagnostics.errors import UserError
from octants.diagnostics.exceptions import OctantsError
from octants.runtime.vulkan import VulkanDevice, library, physical_devices
from tests.golden_files import check_golden
from tests.vulkan import compiled

TEXTS: dict[str, UserError] = {
    "missing_feature": errors.MissingFeature(
        "k", "f64 (shaderFloat64)", "A GPU", "use other types,"
    ),
    "missing_vulkan": errors.MissingVulkan("libvulkan.so.1: cannot open shared object file"),
    "no_vulkan_device": errors.NoVulkanDevice("no driver can be loaded"),
    "no_such_vulkan_device": errors.NoSuchVulkanDevice(3, "0: A GPU, 1: Another GPU"),
    "unfit_vulkan_device": errors.UnfitVulkanDevice("A GPU", "Vulkan 1.2"),
    "vulkan_failed": errors.VulkanFailed("vkQueueSubmit", "status -13"),
    "vulkan_device_lost": errors.DeviceLost(
        "A GPU", "launched since the last synchronisation: `f`"
    ),
    "forked_from_vulkan": errors.ForkedVulkan(),
    "out_of_vulkan_memory": errors.OutOfVulkanMemory("A GPU", "3 GB", "of 4 GB, Octants uses 2 GB"),
    "loop_cut": errors.LoopCut("A driver"),
    "not_on_this_arch": errors.NotOnThisArch("barrier"),
    "too_deep_for_driver": errors.TooDeepForDriver("k", 72, "A driver"),
}


@pytest.mark.parametrize("name", TEXTS)
def test_text(name: str) -> None:
    error = TEXTS[name]
    check_golden(f"errors/{error.code}_{name}", str(error.at()))


def test_every_error_has_a_text() -> None:
    kinds = {
        kind
        for _, kind in inspect.getmembers(errors, inspect.isclass)
        if issubclass(kind, UserError) and kind is not UserError
    }
    assert kinds == {type(error) for error in TEXTS.values()}


def test_a_missing_loader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "_NAMES", {"linux": ("libno_vulkan.so.1",)})
    library.loader.cache_clear()
    try:
        with pytest.raises(OctantsError, match="libno_vulkan.so.1") as caught:
            library.loader()
    finally:
        library.loader.cache_clear()
    assert "OCT451" in str(caught.value)


def test_a_number_of_no_device() -> None:
    name = compiled.device().hardware.name
    with pytest.raises(OctantsError, match="OCT453: Vulkan has no device 17") as caught:
        VulkanDevice(17)
    assert name in str(caught.value)


def test_no_driver() -> None:
    compiled.device()
    program = "import octants as qd; qd.init(arch=qd.vulkan)"
    nowhere = {"VK_DRIVER_FILES": "/nowhere.json", "VK_ICD_FILENAMES": "/nowhere.json"}
    run = [sys.executable, "-c", program]
    done = subprocess.run(run, env=os.environ | nowhere, capture_output=True, text=True)
    assert done.returncode == 1
    assert "arch `vulkan` is not available: Vulkan has no device" in done.stderr
    assert "(VK_DRIVER_FILES is `/nowhere.json`, VK_ICD_FILENAMES is `/now" in done.stderr
    assert "VK_DRIVER_FILES names the drivers" in done.stderr


@pytest.mark.parametrize("status", [0, -3])
def test_drivers_without_a_device(monkeypatch: pytest.MonkeyPatch, status: int) -> None:
    compiled.device()
    function = library.checked("vkEnumeratePhysicalDevices", lambda *_: status)
    made = physical_devices.instance_functions

    def instance_functions(instance: int) -> library.Functions:
        functions = made(instance)
        functions.vkEnumeratePhysicalDevices = function  # type: ignore[method-assign, attr-defined]
        return functions

    monkeypatch.setattr(physical_devices, "instance_functions", instance_functions)
    with pytest.raises(OctantsError, match="OCT452.*no driver offers one.*/dev/dri"):
        physical_devices.all_hardware.__wrapped__()

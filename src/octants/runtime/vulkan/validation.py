"""Runs the Khronos validation layer, if it is installed, and reports its messages."""

from __future__ import annotations

import ctypes
import warnings
from collections import deque
from ctypes import byref, c_char_p, c_int32, c_uint32, c_uint64, c_void_p
from typing import Any

from octants.diagnostics.exceptions import OctantsError, OctantsWarning
from octants.diagnostics.user_frames import levels_to_the_user
from octants.diagnostics.vulkan_errors import ValidationFailed
from octants.runtime.vulkan import structures as vk
from octants.runtime.vulkan.library import global_function, instance_function

LAYER = b"VK_LAYER_KHRONOS_validation"
EXTENSION = b"VK_EXT_debug_utils"
_WARNING, _ERROR = 0x100, 0x1000
_ABOUT_VALIDITY = 2
_MOST = 64


def has_layer() -> bool:
    """Whether the layer is installed."""
    kinds = (c_int32, c_void_p, c_void_p)
    ask = global_function("vkEnumerateInstanceLayerProperties", *kinds)
    count = c_uint32()
    ask(byref(count), None)
    found = (vk.LayerProperties * count.value)()
    ask(byref(count), found)
    return any(each.name == LAYER for each in found)


class Validation:
    """The messages of the layer about an instance, until `report` issues them."""

    def __init__(self) -> None:
        self._messages: deque[tuple[int, str]] = deque(maxlen=_MOST)
        self._callback = vk.DebugCallback(self._on_message)
        self._names = (c_char_p * 1)(LAYER)

    def enable_layer(self, info: Any) -> None:
        """Enable the layer for an instance that is being created, which needs `EXTENSION`."""
        info.layer_count, info.layers = 1, self._names

    def attach(self, instance: int) -> None:
        """Register for the messages about an instance."""
        kinds = (c_int32, c_void_p, c_void_p, c_void_p, c_void_p)
        create = instance_function(instance, "vkCreateDebugUtilsMessengerEXT", *kinds)
        info = vk.DebugMessengerCreateInfo(
            severities=_WARNING | _ERROR,
            kinds=_ABOUT_VALIDITY,
            callback=ctypes.cast(self._callback, c_void_p),
        )
        create(instance, byref(info), None, byref(c_uint64()))

    def _on_message(self, severity: int, _: int, data: Any, __: Any) -> int:
        """The callback of the layer, which runs during the call that a message is about."""
        text = data.contents.message or b""
        self._messages.append((severity, text.decode(errors="replace")))
        return 0

    def report(self) -> None:
        """Issue the layer's warnings, and raise its first error."""
        first: OctantsError | None = None
        while self._messages:
            severity, text = self._messages.popleft()
            if severity >= _ERROR:
                first = first or ValidationFailed(text).at()
            else:
                warnings.warn(f"Vulkan: {text}", OctantsWarning, levels_to_the_user())
        if first is not None:
            raise first

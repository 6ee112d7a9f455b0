"""A kernel, and the count of submissions, for the tests of these."""

from __future__ import annotations

import octants as qd
from octants.runtime.vulkan.device import VulkanDevice


@qd.kernel
def double(a: qd.types.NDArray[qd.f32, 1]):
    for i in a:
        a[i] = a[i] * 2.0 + 1.0


def idle(device: VulkanDevice) -> int:
    """The submissions so far, all of which are done."""
    qd.sync()
    return device.context.submitted

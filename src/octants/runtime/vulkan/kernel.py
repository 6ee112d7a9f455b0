"""Loaded kernels on Vulkan."""

from __future__ import annotations

from octants.runtime.gpu.batched_kernel import BatchedKernel
from octants.runtime.gpu.kernel import Action

_FEW_ITEMS = 4


class VulkanKernel(BatchedKernel):
    """A kernel on a Vulkan device; any thread can launch it."""

    def most_items(self, action: Action) -> int:
        """Few items for each thread where the driver limits iterations."""
        if "cuts" not in self.machine.hardware.features:
            return super().most_items(action)
        return _FEW_ITEMS * action.fill * action.block

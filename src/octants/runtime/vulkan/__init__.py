"""Runs kernels on any GPU with a Vulkan driver, through libvulkan alone."""

from __future__ import annotations

from octants.runtime.vulkan.device import VulkanDevice

__all__ = ["VulkanDevice"]

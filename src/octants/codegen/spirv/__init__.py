"""Generate SPIR-V for Vulkan."""

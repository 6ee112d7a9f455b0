"""Runs compiled kernels: arguments, memory, devices and what launches report."""

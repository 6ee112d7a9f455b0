"""Kernels of the whole test suite, compiled for GPUs that are not at hand."""

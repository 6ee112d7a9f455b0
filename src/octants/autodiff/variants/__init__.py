"""Kernels that run beside a primal or reverse kernel, or instead of it, for one purpose each."""

"""Kernels that the host runs in segments: it decides at ``graph.do_while`` and ``checkpoint``.

`kernel_segments` cuts a kernel, `segmented_kernel` runs it, `checkpoint_status` is what it returns.
"""

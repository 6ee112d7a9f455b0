"""Runs compiled kernels: arguments, memory, devices and what launches report.

`device` is the interface of a device. A launch fills a block of `parameter_blocks` by a function
that `arguments.launch_function` has generated, and a device runs it: `cpu`, or `cuda` (and `hip`),
`vulkan` and `metal`, which share `gpu`. `capture` records launches for graphs.
"""

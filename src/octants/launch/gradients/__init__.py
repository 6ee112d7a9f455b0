"""The gradient of a kernel: its variants, its launch, and what it has to know of memory.

* `derivative_variants` compiles the reverse and forward kernels; `kernel_gradient` is
  ``kernel.grad``, with the check of `operand_changes`.
* For tapes: `taped_memory`, `taped_foreign_arrays`.
* Advice: `lost_gradient_warnings`; `explain_gradient`, with its `explain_gradient_report`.
"""

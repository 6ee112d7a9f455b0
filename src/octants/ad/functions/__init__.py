"""Kernels as functions of arrays without side effects, and the derivatives of such functions.

* `array_function` makes the function, `array_function_signature` describes it;
  `gradients_without_tape` reverses one of a single launch, `calls_by_address` calls one again,
  `field_checks` tells whether a derivative reads the same fields as the value.
* What users call: `value_and_gradient`, `jvp_vjp_hvp`, `jacobians` (with `jacobian_colouring`),
  `implicit` (with `linear_operators`).
* Several directions at once: `batched_directions`, `repeated_runs`; for the `vmap` of other
  libraries: `batched_steps`.
* `higher_derivatives` are the steps of which PyTorch and JAX compose derivatives.
"""

"""Launches with arguments like those of an earlier one, recognised by generated functions.

* `warm_call` has those of kernels, `warm_gradient` those of gradients. Both include the conditions
  of `specialisation_guards` on what the kernel has read from Python.
* `changing_numbers` finds the numbers that no launch should be specialised for.
* `alias_free_launches` recognises arrays that share no memory.
"""

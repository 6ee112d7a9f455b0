"""Arithmetic in fewer or faster operations, mostly as `fast_math` allows.

* Products and sums: `fold_zero_products`, `contract_to_fma`, `share_differences`.
* Divisions: `relax_divisions`, `approximate_quotients`, `expand_divisions`, `share_reciprocals`;
  powers: `expand_powers`.
* Functions with slow paths: `bound_angles`, `share_slow_paths`.
* `drop_custom_derivatives` runs when derivatives have been taken.
"""

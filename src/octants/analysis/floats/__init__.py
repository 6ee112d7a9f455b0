"""Floats: their ranges, and what rounding and slow paths depend on.

* Ranges: `float_ranges`; in the iterations of a loop: `float_magnitudes`. `subnormals` finds
  numbers that are none.
* Loops that speculate on small operands: `slow_paths`, `speculated_iterations`.
* `replay_strictness` finds values that a replay must compute bit by bit.
"""

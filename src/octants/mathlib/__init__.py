"""The mathematical functions, written in the intermediate representation itself.

Every backend compiles these and so gives the same bits: they are built of operations that all round
correctly (+ - * / and the square root), of integers and of selections; there are no tables in
memory, no loops, and no branches except for rare work such as reducing a huge angle. f16 goes
through f32. `function_registry` names the functions, `evaluate_with_numpy` runs them on numpy's
numbers, and `scripts/mathlib_coefficients.py` derives the constants.
"""

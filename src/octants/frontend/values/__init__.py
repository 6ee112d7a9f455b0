"""Values of expressions, and what operators and functions make of them.

* `expression_values` has their types; `flattening` makes scalars of them, and back.
* Operators: `operands`, `arithmetic`, `struct_operators`; functions: `numeric_functions`.
* Vectors and matrices: `constructors`, `matrices`, `linear_algebra`; `tiles` of work items.
* What users should know: `debug_overflow_checks`, `lossy_assignments`.
"""

"""Turns operations that a target has no instructions for into those that it has.

    %2: i32 = binary<truncmod>(%0, %1)

where the divisor may be zero, or the least number be divided by -1, becomes::

    %2: i32 = constant<0>()
    %3: u1 = compare<eq>(%1, %2)
    ...
    %12: i32 = binary<remainder>(%0, %11)
    %13: i32 = select(%3, %0, %12)

A target says by a `legal_operations.Legal` what it has. `integers`, `floats`, `conversions` and
`random_draws` are tables of rules, `legaliser` builds by them, `replacement_blocks` gives what
takes the place of one operation, and `math_function_bodies` lowers whole functions of `mathlib`.
Work that is long is a call of a function of `mathlib`.
"""

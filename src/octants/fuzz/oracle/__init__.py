"""The oracle: runs a kernel's source under CPython with numbers that record a tape.

It shares no code with the compiler, except for the definition of random bits (`ir.random_draws`). A
number carries its type, its value (rounded after every operation), a bound on how far a sound
implementation may be from that value, its tangent and its position on the tape.
"""

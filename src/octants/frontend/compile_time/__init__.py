"""Python objects while a kernel is compiled: what it is specialised for.

`name_resolution` finds what a name means: a variable, or a Python object. Objects that kernels can
compute with become values by `python_object_conversion`; expressions of others are evaluated in
Python by `compile_time_evaluation`, if `cacheable_calls` and `host_functions` allow.

A number of the host that keeps changing is an argument: `unspecialised_numbers`. `local_lists` are
the lists that a kernel makes itself.
"""

"""The interface of functions of arrays to the library of the arrays: `array_library_protocol`.

`numpy_array_library` is numpy's side, `device_array_library` that of libraries which name memory of
a GPU by addresses.
"""

"""Compiled kernels on disk, where the next process finds them.

`digest` and `build_inputs` say under which key, `pickling` in which form, `store` in which files.
"""

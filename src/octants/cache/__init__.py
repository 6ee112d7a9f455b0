"""What was compiled, on disk: so that the next process finds it.

`digest` and `build_inputs` say under which key, `pickling` in which form, `store` in which files.
"""

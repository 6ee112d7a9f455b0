"""What was compiled, on disk: so that the next process finds it.

`digest` and `manifest` say under which key, `pickling` in which form, `store` in which files.
"""

"""Calls, and all functions that kernels can call.

`dispatch` decides what a call is:

* a word of the language: `language_calls`, `print_and_assert`;
* a function of the library: `builtins`, of Python's `operator` module: `operator_functions`;
* a func or a method, whose body is built in place of the call: `functions`, `inlined_calls`,
  `custom_adjoints`; one that was written for Python: `python_functions`;
* a function that reaches itself: `recursion`, of which `recursion_to_loops` makes a loop.
"""

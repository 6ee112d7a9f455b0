"""Python's syntax: the source of a function, rewritten and searched before SSA is built of it.

`source` finds and parses it. `match_statements` and `private_names` rewrite what is only another
spelling. `names_in_source` and `reads_of_functions` find what code assigns and reads.
"""

"""Work items that cooperate, on machines where one thread runs them all.

`sequence_work_items` runs those of a block one after the other, from barrier to barrier;
`sequence_subgroups`, `values_across_barriers` and `localise_shared_arrays` are its parts.
"""

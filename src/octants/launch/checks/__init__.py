"""Variants of kernels that check a launch, or keep what only it could know.

`race_checks` watches accesses, `read_fingerprint_check` compares what both runs read, `atomic_logs`
keeps what atomics returned.
"""

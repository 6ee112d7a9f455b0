"""The differential fuzzer: random kernels, an oracle, and the comparison of the two."""

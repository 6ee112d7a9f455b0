"""Programs with loops whose bounds have every form; see `tests.ad.test_loop_bounds`."""

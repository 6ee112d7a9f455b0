"""Checks that debug modes add: indices in bounds, finite numbers, data races."""

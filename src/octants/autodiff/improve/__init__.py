"""Rewrites of a reverse kernel that make its records smaller, and its loops faster.

They recognise the records and the loops of the backward sweep, so they are not among `passes`.
"""

"""Fits the Lotka-Volterra equations to the pelt counts of the Hudson's Bay Company, 1900-1920.

`pelts` reads the counts, `simulator` is the differentiated kernel, `fit` descends from many random
starts at once, `picture` draws the result, and `command` is what the user runs.
"""

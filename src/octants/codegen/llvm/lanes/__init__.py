"""Parallel loops as vector code: one work item per lane."""

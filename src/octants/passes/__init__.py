"""Transformations of a module, one verb per file; `pipeline` orders them."""

"""Errors as data: a class for each in the files by subject, `render` for their text with carets."""

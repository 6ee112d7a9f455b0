"""Tasks as units: `outline_tasks` makes them, `mark_short_tasks` notes which are short.

`launch_temporaries` are the arrays by which passes carry values from task to task.
"""

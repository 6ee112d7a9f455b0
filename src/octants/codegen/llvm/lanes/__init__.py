"""Generate vector code for parallel loops: one work item per lane."""

"""Driver graphs: captured commands, repeated launches and kernels of many dispatches."""

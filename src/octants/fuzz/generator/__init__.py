"""Random programs that are well-defined: in range, free of races, bounded, and differentiable."""

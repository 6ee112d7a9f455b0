"""Code motion: hoists out of branches and loops, sinks into branches and to the end of a block."""

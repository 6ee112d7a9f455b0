"""What all GPUs share; `driver` has the verbs that each of their drivers implements."""

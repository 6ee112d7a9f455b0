"""Arguments of kernels: their types and keys, and how a launch packs them."""

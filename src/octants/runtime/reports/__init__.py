"""Reports of launches to the host: printed text, failures, overflows."""

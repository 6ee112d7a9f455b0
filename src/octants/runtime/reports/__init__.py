"""What launches report to the host: printed text, failures, overflows."""

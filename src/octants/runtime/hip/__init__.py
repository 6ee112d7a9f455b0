"""GPUs of AMD, through the HIP runtime: `runtime.cuda`, over the functions of another library."""

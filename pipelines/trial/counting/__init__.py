"""What is counted of an arm without times: operators, compilations, the collector, kernels."""

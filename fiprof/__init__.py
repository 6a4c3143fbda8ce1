"""fiprof: GPU kernels under Nsight Systems and Nsight Compute, archived and read."""

__version__ = "0.1.0"

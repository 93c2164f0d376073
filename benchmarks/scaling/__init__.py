"""The parts of `benchmarks/scale.py`: the servers, the probe, and what is measured when."""

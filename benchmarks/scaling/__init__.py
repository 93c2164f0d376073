"""The parts of `benchmarks/scale.py`: the servers, the probe, and the phases of the measurement."""

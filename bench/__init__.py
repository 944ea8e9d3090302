"""Benchmarks: the whole daemon, run for real, and the figures it is held to. `python -m bench --help`."""

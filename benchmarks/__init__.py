"""Measures the speed and memory of onmf and of other packages: ``make bench``, or ``python -m benchmarks --help``."""

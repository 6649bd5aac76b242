"""Speed and memory, measured side by side with the peers. ``make bench``, or ``python -m benchmarks --help``."""

"""Speed, measured side by side with the peers. Run with ``make bench`` or ``python -m benchmarks``."""

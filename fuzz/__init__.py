"""Cases by the hundred thousand against onmf: fits of ugly data, and files that were tampered with."""

"""Runs hundreds of thousands of random cases against onmf: fits of ugly data, and reads of damaged files."""

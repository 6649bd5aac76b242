"""Cells: scanpy's pipelines and onmf on sets whose classes are known, and on a million cells."""

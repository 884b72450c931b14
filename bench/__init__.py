"""Benchmarks of the repository: `python -m bench W3 --json`, and of single parts in the other files."""

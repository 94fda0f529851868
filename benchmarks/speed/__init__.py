"""Recollect beside other systems in one run: `make bench-quick`, `make bench`, `python -m benchmarks.speed --help`."""

"""What graphagent costs, measured: `python -m benchmarks`, or `make bench`."""

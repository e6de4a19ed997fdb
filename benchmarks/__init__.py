"""Throughput and memory against peers: `python -m benchmarks.bench_knn`."""

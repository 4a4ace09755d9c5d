"""Speed against named peers. `python -m benchmarks` measures everything and rewrites docs/benchmarks.md."""

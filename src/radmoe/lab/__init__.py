"""Small models and tasks whose rollouts anyone can make on two cores, for the demo, the tests and the benchmarks."""

"""Confinement for programs that nobody has read."""

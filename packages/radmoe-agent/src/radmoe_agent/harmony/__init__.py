"""The Harmony harness: see `radmoe_agent` for its files."""

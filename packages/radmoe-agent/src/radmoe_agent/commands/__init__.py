"""Commands that this package adds to `radmoe`."""

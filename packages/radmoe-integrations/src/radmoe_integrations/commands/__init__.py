"""The commands that radmoe-integrations adds to `radmoe`."""

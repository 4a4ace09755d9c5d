"""Calibrations that ship with the package: FINGERPRINT.json for each checkpoint that one was fitted for.

`radmoe.certainty.shipped` looks here. A file is what `radmoe calibrate POOL... --ship` writes; docs/calibration.md has the
command that makes those of the lab's models.
"""

"""Calibrations that ship with the package: one file for each checkpoint, style and way of sampling.

`radmoe.selection.calibration.find_calibration` looks here. A file is what `radmoe calibrate POOL... --ship` writes; docs/calibration.md has
the command that makes those of the lab's models.
"""

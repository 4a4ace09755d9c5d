"""What people look at: the explorer's file, charts, and the page of a calibration."""

"""Output for people: the explorer's HTML file, charts, and the page of a calibration."""

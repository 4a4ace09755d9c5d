"""Fits, on graded pools, the probability that a pick is right. `radmoe.selection.calibration` applies what was fitted.

picks.py     the graded picks and their similarities
fit.py       the curves of each kind and number of rollouts, and their cross-validation
tables.py    whether the probabilities are calibrated, and the risk among the surest picks
page.py      the tables and a figure as files
"""

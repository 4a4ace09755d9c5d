"""The lowest room: the screen, other people's files, temporary files and plugins.

printing.py      the one way to a screen: whatever others wrote is made visible, nothing is markup
screen.py        tables and progress bars
foreign.py       files that somebody else made: what they may choose, and how much of them is read
scratch.py       files and directories that are there only while they are being made
side_by_side.py  work in threads, with its results in order
plugins.py       what other packages add: commands, tasks, models, engines, methods, readouts and clusters
cluster.py       the cluster that `--on` names
"""

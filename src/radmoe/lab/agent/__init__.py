"""The lab's agent: generated repositories with one planted bug, and all that a small model needs to learn to mend them.

functions.py     the functions that repositories consist of, and how they break
running.py       what functions return, computed here; check.py, which repositories carry
repositories.py  repositories with an issue, visible tests and hidden ones
"""

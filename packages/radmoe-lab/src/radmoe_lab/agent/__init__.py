"""The lab's agent: generated repositories with one planted bug, and demonstrations from which a small model learns to
fix them.

functions.py       the functions that repositories consist of, and how they break
running.py         what functions return, computed here; check.py, which every repository carries
sketches.py        what repositories are: modules, a chain of functions, and a bug
repositories.py    repositories with an issue, visible tests and hidden ones
templates.py       the texts between agent and model; mini.yaml has them for mini-swe-agent
shell.py           commands of demonstrations, with their exact effect, without running them
reasoning.py       what demonstrations think
demonstrations.py  worked trajectories
corpus.py          the same as token ids, to train on
loop.py            a conversation as mini-swe-agent leads it
workplace.py       where commands run, confined
git_stand_in.py    what git diff prints, and a program for machines without git
verdicts.py        what a patch is worth: hidden tests
records.py         trajectories on disk
export.py          repositories and verdicts as files that radmoe agent reads
sample.py          thousands of trajectories on a GPU machine
"""

"""The paper's analyses on anyone's pools: claims, rules, evidence, verdicts.

evidence.py  graded pools as arrays, and similarities that all studies share
reading.py   requests, and one problem read for many of them
store.py     what was read, kept in the user's cache
picks.py     who is right under RAD, votes and the oracle
gains.py     what picks gain over a random rollout, and from where
budgets.py   gains by anchor and budget
bands.py     picks from subsets of the layers
purity.py    do rollouts that route alike give the same answer
resample.py  bootstrap distributions over problems
decision.py  claims, rules and verdicts
charts.py    figures as data
needs.py     what studies need of pools
base.py      what a study is, and the table of all
run.py       running them
paper/       the studies themselves, one module each
"""

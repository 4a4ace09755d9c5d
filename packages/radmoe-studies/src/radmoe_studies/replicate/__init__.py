"""One of the paper's cells on the user's own hardware: `radmoe replicate`.

configs.py   the ten configurations of the paper as data, their tasks, and what the paper prints for each
setup.py     the engine, checked against the configuration, and how it is asked
estimate.py  what a replication will cost, from a short run
run.py       what a directory remembers: the seed, the estimates
cell.py      a task captured, graded and measured: what each method did on each problem
choose.py    the model choosing among its own answers
document.py  replication.json: written, read strictly, merged
results.py   tables with the printed rows beside the user's, paired tests, verdicts
"""

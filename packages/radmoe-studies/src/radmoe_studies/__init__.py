"""The paper's analyses on anyone's pools: claims, rules, evidence, verdicts.

What is read:
    evidence.py    graded pools as arrays, and similarities that all studies share
    reading.py     requests, and one problem read for many of them
    cross_problem.py  rollouts of several problems compared with each other
    paper_tables.py  the tables that the paper prints

What is computed per problem:
    picks.py       whether the picks of RAD and of a vote are right
    fusions.py     RAD+DC
    lifts.py       the parts of RAD's lift; gains.py the same by anchor, with tests
    budgets.py     gains by anchor and budget; bands.py picks from subsets of the layers
    basins.py      neighbours, densities and purities of many problems at once
    purity_curves.py  purity and accuracy as rollouts or windows grow
    arrivals.py    rollouts in many orders of arrival: picks, stops, tokens
    online_filter.py  DeepConf's online filter; pruning.py rollouts given up by their likelihood; per_rollout.py what both read
    subcohorts.py  selectors in sub-cohorts of m rollouts; rates.py their hit rates, pooled

What is computed over problems:
    pooling.py     panels put together, with problems as clusters
    resample.py    bootstrap distributions over problems; quantities.py numbers with their draws
    correlations.py  correlations under many weights at once
    accuracies.py  tables of accuracies
    decision.py    claims, rules and verdicts
    needs.py       what studies need of pools
    base.py        what a study is, and the table of all; run.py running them
    paper/         the studies themselves, one module each
    beyond/        studies of what the paper does not have
    report/        pages, charts, published tables

Apart from these:
    calibration/   how sure a pick is, fitted on graded pools
    replicate/     one of the paper's cells on the user's own hardware
"""

"""Exact tests, intervals, envelopes and power for comparisons on the same problems. NumPy and SciPy only.

Accuracies, gaps and rates are fractions: one percentage point is 0.01. `docs/stats.md` has the formulas.
"""

from radmoe.evaluation.stats.adjust import benjamini_hochberg, holm
from radmoe.evaluation.stats.bootstrap import (
    Interval,
    bootstrap_mean,
    cluster_bootstrap,
    paired_bootstrap,
    two_stage_bootstrap,
)
from radmoe.evaluation.stats.correlation import Correlation, partial_correlation, spearman
from radmoe.evaluation.stats.paired import (
    CochranQ,
    McNemar,
    Paired,
    Test,
    cochran_q,
    mcnemar,
    mcnemar_boundary,
    mcnemar_exact,
    mcnemar_mde,
    mcnemar_power,
    paired_test,
    sign_flip_exact,
)
from radmoe.evaluation.stats.random_pick import (
    Envelope,
    PoissonBinomial,
    poisson_binomial_pmf,
    poisson_binomial_test,
    random_envelope,
)

__all__ = [
    "CochranQ", "Correlation", "Envelope", "Interval", "McNemar", "Paired", "PoissonBinomial", "Test", "benjamini_hochberg",
    "bootstrap_mean", "cluster_bootstrap", "cochran_q", "holm", "mcnemar", "mcnemar_boundary", "mcnemar_exact",
    "mcnemar_mde", "mcnemar_power", "paired_bootstrap", "paired_test", "partial_correlation", "poisson_binomial_pmf",
    "poisson_binomial_test", "random_envelope", "sign_flip_exact", "spearman", "two_stage_bootstrap",
]  # fmt: skip

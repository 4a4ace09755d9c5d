"""Similarity between route vectors and density under it: arrays in, arrays out.

jaccard.py     weighted and binary Jaccard between all rows of a route matrix
density.py     nearest neighbours, K-NN density, ties, ranks, basins
gather.py      route vectors summed from rows of expert ids and weights
simd.py        the few vector operations in LLVM that jaccard.py is built from
reference.py   weighted Jaccard in plain NumPy
"""

from radmoe.selection.kernels.density import TIE, climb, density_scores, knn, knn_density, levels, rank_sum, ranks, tied
from radmoe.selection.kernels.jaccard import (
    binary_jaccard,
    binary_jaccard_many,
    weighted_jaccard,
    weighted_jaccard_many,
)

__all__ = [
    "TIE", "binary_jaccard", "binary_jaccard_many", "climb", "density_scores", "knn", "knn_density", "levels", "rank_sum",
    "ranks", "tied", "weighted_jaccard", "weighted_jaccard_many",
]  # fmt: skip

"""The archive: rollouts of the lab models, sampled once on a GPU, graded, packed, and turned into pools by replay.

files.py    the packed files and their manifest, which the distribution radmoe-lab brings (docs/lab.md)
pack.py     `python -m radmoe_lab.archive.pack`: grades and packs what `radmoe_lab.sample` sampled
source.py   packed rollouts as a source for replay
pools.py    pools from packed rollouts: what is missing is replayed, and the result compared with the GPU's

The room stands behind grading, because packed rollouts carry their labels.
"""

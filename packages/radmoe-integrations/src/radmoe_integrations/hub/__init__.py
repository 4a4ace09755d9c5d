"""Pools as data sets of the Hub, and back.

layout   the files of such a data set, and the columns of its rollouts
export   a pool becomes a data set
card     its README.md
reading  a data set becomes a pool
"""

"""Possible explanations of differences, and a list of figures that printed figures cannot check."""

from __future__ import annotations

NOTES: dict[tuple[str, str, str], str] = {
    ("effort-decomp", "Medium", "avg@coh in the text"): (
        "The row's own avg@64 and anchor part, 69.9 + 1.4, give 71.3 too; 70 is its avg@64, so the text seems to mix "
        "the two averages (at Low both print as 42, at High 92 is avg@coh)."
    ),
    ("think-instruct", "Qwen3-30B", "pick accuracy gap"): (
        "Over all 120 problems, with abstentions counted as wrong, RAD has 108 and 88 right: a gap of 16.7, which is in "
        "the range."
    ),
    ("think-instruct", "Qwen3-Next-80B", "pick accuracy gap"): (
        "Over all 120 problems RAD has 107 and 91 right: a gap of 13.3, so the range is not RAD's there either; "
        "RAD+DC has 110 and 93, a gap of 14.2."
    ),
}

REMARKS = (
    "The four math sets are taken as 30 problems each. The paper prints only their sum (120, as n in tab:dc), but every "
    "math accuracy of tab:marker-only is a whole number of 30.",
    "Appendix Kernel says that the kernels pick a different rollout on 816 cells. 816 is b + c, the cells where exactly "
    "one of the two picks is right; different picks that are both right or both wrong would come on top.",
    "tab:diversity counts 304 problems of OSS-20B-High and 3,152 in all, tab:per-model 305 and 3,153. The paper does not "
    "say that they are the same problems.",
    "Bootstrap intervals, Poisson-binomial z and stars, and the p of RAD against Majority (0.52 and 0.18) need per-problem "
    "data that is not printed. Of tab:effort-trend only Low against Medium follows: with High the problems are a subset.",
)

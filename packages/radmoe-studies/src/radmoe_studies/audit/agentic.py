"""SWE-bench: lifts, and what the mixed subset implies for all 500 problems.

Problems whose rollouts all pass or all fail come out the same under any selector. So the number of right answers
outside the mixed subset is fixed, and four figures of each row must agree on it.
"""

from __future__ import annotations

from collections.abc import Iterator

from radmoe_studies.audit.check import Check, compare
from radmoe_studies.audit.paper import Paper
from radmoe_studies.audit.spans import count, read

ALL = 500
ORACLES = {"Qwen3.6-35B-A3B": "oracle_qwen", "gpt-oss-120B": "oracle_120b"}


def checks(paper: Paper) -> Iterator[Check]:
    table = "swebench"
    for row in paper.rows(table):
        model, mixed = row["model"], int(row["n_mix"])
        mixed_right, all_right = count(row["mix_rad"], mixed), count(row["all_rad"], ALL)
        lift = mixed_right * (100 / mixed) - read(row["mix_avg"])
        how = f"100 x {mixed_right.value:g} / {mixed} - {row['mix_avg']}"
        yield compare(table, model, "mix_delta", row["mix_delta"], lift, how)
        how = f"100 x {all_right.value:g} / {ALL} - {row['all_avg']}"
        yield compare(table, model, "all_delta", row["all_delta"], all_right * (100 / ALL) - read(row["all_avg"]), how)
        how = f"{lift.value:.2f} x {mixed} / {ALL}"
        yield compare(table, model, "all_delta", row["all_delta"], lift * (mixed / ALL), how)
        always_right = all_right - mixed_right
        how = f"({all_right.value:g} - {mixed_right.value:g} + {mixed} x {row['mix_avg']} / 100) x 100 / {ALL}"
        average = (always_right + read(row["mix_avg"]) * (mixed / 100)) * (100 / ALL)
        yield compare(table, model, "all_avg", row["all_avg"], average, how)
        if model in ORACLES:
            how = f"100 ({all_right.value:g} - {mixed_right.value:g} + {mixed}) / {ALL}"
            yield compare(
                table, model, "any of 16", paper.prose(ORACLES[model]), (always_right + mixed) * (100 / ALL), how
            )
        printed = read(row["mix_delta"])
        yield compare(table, model, "lift in the text", paper.prose("swe_mixed_range"), printed, "", "the table's")
        repeat = paper.row("swe-length", model=model)["rad_lift"]
        yield compare(
            "swe-length", model, "rad_lift", repeat, lift, f"100 x {mixed_right.value:g} / {mixed} - {row['mix_avg']}"
        )
    yield compare(table, "all", "rollouts per model", paper.prose("swe_rollouts"), 16 * ALL, f"16 x {ALL}")

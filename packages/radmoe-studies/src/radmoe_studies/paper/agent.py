"""Study 28: does routing agreement pick better patches? (Tab. "swebench"; App. "Agentic best-of-N".)

A problem is an issue, a rollout a trajectory, and right is what the hidden tests pass. Only issues whose trajectories split
can tell selectors apart: they are the mixed ones.
"""

from __future__ import annotations

from radmoe_studies.base import Findings, Options, study
from radmoe_studies.decision import EFFECT, POINT, POINTS, Claim, ClaimDecision, above, all_of, changed, within
from radmoe_studies.evidence import Evidence
from radmoe_studies.needs import Need
from radmoe_studies.patches import (
    ABLATIONS,
    DRAWN,
    SELECTORS,
    Issues,
    added_table,
    charts,
    issues_of,
    length_table,
    main_table,
    over_mixed,
    patched_table,
    pooled,
    selector_table,
    size_table,
)
from radmoe_studies.pooling import AGENTS, groups

INERT = 0.1  # a correlation within a problem that is smaller says nothing
NON_INFERIOR = 0.02  # of accuracy: comparing sets may cost as much
REMARKS = (
    "Verdicts, patches and transcripts are read here alone: the selection that a user makes sees routing.",
    "A trajectory without a patch counts as wrong, and a selector may pick it, as in the paper; radmoe agent select --method rad is "
    "RAD among those with a patch. Anyone can leave the others out, so its gain is what it has over a random one of those with a patch.",
)
TRAJECTORIES = Need(
    "trajectories of an agent with verdicts",
    lambda evidence: any(map(AGENTS.holds, evidence.panels)),
    "radmoe agent run --data ISSUES --out RUNS, then radmoe agent evaluate RUNS --labels VERDICTS",
)
_MIXED = "on issues whose trajectories split, all configurations pooled"
BEATS = Claim(
    "agent.beats-random",
    "RAD's patch passes the hidden tests more often than a random patch.",
    "+4.7 / +4.8 / +5.0 points over any trajectory, no interval",
    "tab:swebench",
    f"RAD's hit minus the share of right ones among the trajectories that left a patch, {_MIXED}, is above {100 * POINTS:g} points: "
    "one-sided on the bootstrap over issues. An abstention is wrong.",
    changed(EFFECT, "a trajectory without a patch is no candidate: the floor is a random one that can be submitted"),
)
STEPS = Claim(
    "agent.beats-step-counts",
    "What RAD gains is more than the number of steps says.",
    "step-count selectors -3.9 / +0.8 / +0.5 points",
    "tab:swe-length",
    f"RAD's hit minus that of the trajectory with fewest steps, and minus that of the one with most steps, {_MIXED}, are "
    f"both above {100 * POINTS:g} points: one-sided on the bootstrap over issues, the weaker decides.",
    changed(EFFECT),
)
SIZE = Claim(
    "agent.size-is-inert",
    "Within an issue, the size of a fingerprint says nothing about who is right.",
    "r = -.00 / +.03 / +.06 within problems",
    "tab:swe-length",
    f"The mean over mixed issues of the correlation of |S| with being right, all configurations pooled, lies within {INERT:g} of 0: "
    "two one-sided tests on the bootstrap over issues.",
)
ANCHOR = Claim(
    "agent.single-anchor",
    "The boundary's rows select better than as many random rows and than all rows.",
    "no number: 'dilutes the agreement signal'",
    "App. swebench",
    f"RAD's hit minus that over as many random rows of each trajectory, and minus that over all rows, {_MIXED}, are both "
    f"above {100 * POINT:g} point: one-sided on the bootstrap over issues, the weaker decides.",
    changed(EFFECT),
)
BINARY = Claim(
    "agent.sets-suffice",
    "Comparing sets of experts is no worse than comparing their averaged weights.",
    "no number: 'a deliberate choice'",
    "App. swebench",
    f"RAD's hit with the binary kernel minus that with the weighted one, {_MIXED}, is above {-100 * NON_INFERIOR:g} "
    "points: one-sided on the bootstrap over issues.",
)


@study(
    28,
    "Does routing agreement pick better patches?",
    where="tab:swebench, tab:swe-length, App. swebench",
    claims=(BEATS, STEPS, SIZE, ANCHOR, BINARY),
    needs=(TRAJECTORIES,),
    population=AGENTS,
)
def agent(evidence: Evidence, options: Options) -> Findings:
    panels = [panel for panel in evidence.panels if panel.pool is not None]
    own = [issues_of(name, members) for name, members in groups(panels, lambda p: p.configuration).items()]
    every = own if len(own) < 2 else [*own, pooled(own)]
    decisions, notes = _decide(every[-1], options)
    tables = (
        main_table(every, options),
        selector_table(every, options, SELECTORS, "agent-selectors", "Selectors on mixed issues"),
        patched_table(every, options),
        added_table(every, options),
        length_table(every, options),
        selector_table(every, options, ABLATIONS, "agent-ablations", "What RAD reads, on mixed issues"),
        size_table(every, options),
    )
    return Findings(tables, charts(every, options), decisions, (*notes, *REMARKS))


def _decide(issues: Issues, options: Options) -> tuple[tuple[ClaimDecision, ...], tuple[str, ...]]:
    hits, notes = issues.hits, list[str]()
    decisions: list[ClaimDecision] = []

    def differences(claim: Claim, others: tuple[str, ...], threshold: float) -> None:
        lacking = [issues.missing.get(other, "not measured") for other in others if other not in hits]
        columns = {other: hits["rad"] - hits[other] for other in others if other in hits}
        result = None if lacking else over_mixed(issues, columns, options)
        if result is None:
            notes.append(f"{claim.key} was not tested: {lacking[0] if lacking else 'no issue is mixed'}.")
            return
        gaps = [result.mean(column) for column in range(len(others))]
        decisions.append(all_of(claim, [above(claim, gap, unit="points", threshold=threshold) for gap in gaps]))

    if not issues.mixed.any():
        return (), ("No issue is mixed: all trajectories of each pass, or none does. Nothing can be decided.",)
    differences(BEATS, (DRAWN,), POINTS)
    differences(STEPS, ("fewest-steps", "most-steps"), POINTS)
    inert = over_mixed(issues, {"r": issues.within}, options)
    if inert is None or not inert.mean(0).finite:
        notes.append(f"{SIZE.key} was not tested: fingerprints have one size within every issue, or nearly every one.")
    else:
        decisions.append(within(SIZE, inert.mean(0), unit="r", margin=INERT))
    differences(ANCHOR, ("random", "all"), POINT)
    differences(BINARY, ("weighted",), -NON_INFERIOR)
    return tuple(decisions), tuple(notes)

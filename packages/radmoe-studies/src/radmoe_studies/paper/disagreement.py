"""Study 17: does RAD help where rollouts disagree? (Fig. "cohort-agreement", left; Tab. "diversity".)

The advantage of RAD on a problem is its hit minus the share of right rollouts among the located ones. It contains that
share, so that a correlation with anything that goes with difficulty proves little: a random located pick has the same
advantage by construction, and its correlations are the null that RAD's are compared with.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

from radmoe.evaluation.table import Cell, Column, Row, Table, missing
from radmoe_studies import picks
from radmoe_studies.base import Findings, Options, study
from radmoe_studies.correlations import ENT, HIT, RATE, Moments, correlations, moments
from radmoe_studies.decision import CORRELATION, EFFECT, Claim, ClaimDecision, above, below, changed
from radmoe_studies.evidence import Evidence, Floats, Panel, Request
from radmoe_studies.needs import VOTES
from radmoe_studies.paper_tables import printed
from radmoe_studies.pooling import configuration, groups, of_pool, shown, stack
from radmoe_studies.report.figures import Chart, Plot, Series
from radmoe_studies.resample import Quantity, interval

FEWEST = 4  # configurations of which a correlation between configurations is made
NULLS = 500  # random selectors
BETWEEN = 0.3  # of a correlation over a handful of configurations: less explains under a tenth of their differences
BANDS = 10  # of the rate of right located rollouts

ACCURACY = Claim(
    "disagreement.gain-falls-with-accuracy",
    "Between configurations, RAD's gain falls as located rollouts get more accurate.",
    "r = -.90",
    "Fig. cohort-agreement, left",
    f"The correlation over all configurations of delta-sel with avg@coh (well-posed problems) is below -{BETWEEN}: one-sided on the "
    f"bootstrap over problems. It needs {FEWEST} configurations.",
    changed(EFFECT),
)
ENTROPY = Claim(
    "disagreement.gain-rises-with-entropy",
    "Between configurations, RAD's gain rises with the entropy of answers.",
    "r = +.84",
    "Fig. diversity",
    f"The correlation over all configurations of delta-sel with the mean entropy of answers (well-posed problems) is above {BETWEEN}: "
    f"one-sided on the bootstrap over problems. It needs {FEWEST} configurations.",
    changed(EFFECT),
)
WITHIN = Claim(
    "disagreement.within-a-model",
    "Within a configuration, RAD's advantage on a problem rises with the entropy of its answers.",
    "r = +.19",
    "tab:diversity",
    "The correlation of advantage and entropy over problems, centred within configurations and pooled over all, is above its mean "
    f"under random located picks by {CORRELATION}: one-sided on the bootstrap over problems.",
    changed(EFFECT),
)
PARTIAL = Claim(
    "disagreement.beyond-difficulty",
    "It does so beyond what the difficulty of the problem explains.",
    "r = +.28",
    "tab:diversity",
    "The partial correlation of advantage and entropy given the share of right located rollouts, centred within "
    f"configurations and pooled over all, is above its mean under random located picks by {CORRELATION}: one-sided on the bootstrap "
    "over problems.",
    changed(EFFECT),
)
PAPER = {"avg@coh": -0.90, "entropy": 0.84}  # r with delta-sel, between configurations


def wanted(panel: Panel) -> list[Request]:
    return [picks.standard(panel)] if panel.domain in ("math", "science") else []


def entropies(panel: Panel) -> Floats:
    """The entropy of the answers of each problem, in nats [P]; NaN where no rollout has an answer."""
    counts = np.stack([(panel.answer == a).sum(1) for a in range(int(panel.answer.max(initial=0)) + 1)], 1).astype(
        float
    )
    total = counts.sum(1, keepdims=True)
    share = counts / np.maximum(total, 1)
    out = -np.sum(share * np.log(np.where(share > 0, share, 1.0)), axis=1)
    return np.where(total[:, 0] > 0, np.abs(out), np.nan)


def problems(panel: Panel) -> Floats:
    """Entropy, rate of right located rollouts, and RAD's hit [P, 3], NaN on problems that are not eligible."""
    request = picks.standard(panel)
    located = panel.read(request).located
    rows = np.column_stack([entropies(panel), picks.rate(panel, located), picks.rad(panel, request)])
    rows[~(picks.eligible(panel, request) & np.isfinite(rows).all(1))] = np.nan
    return rows


def nulls(rows: Sequence[Floats], count: int, seed: int) -> tuple[Floats, Floats]:
    """Both pooled correlations of selectors that pick a random located rollout [count]."""
    rng = np.random.default_rng(seed)
    members = [list(range(len(own))) for own in rows]
    out = []
    for _ in range(count):
        drawn = [np.column_stack([own[:, :2], rng.random(len(own)) < own[:, RATE]]) for own in rows]
        out.append([float(r[0]) for r in moments(drawn, members).pooled()])
    simple, partial = np.array(out).T
    return simple, partial


def within_bands(
    rows: Sequence[Floats], members: Sequence[Sequence[Hashable]], weights: Floats
) -> tuple[float, Floats]:
    """The correlation of entropy and advantage among problems of like difficulty, with its draws.

    It is computed within each configuration and each tenth of the share of right rollouts, and pooled.
    """
    parts, owners = [], []
    for own, clusters in zip(rows, members, strict=True):
        band = np.digitize(own[:, RATE], np.linspace(0, 1, BANDS + 1)[1:-1])
        for one in np.unique(band):
            inside = np.flatnonzero(band == one)
            parts.append(own[inside])
            owners.append([clusters[int(i)] for i in inside])
    order = {cluster: i for i, cluster in enumerate(dict.fromkeys(c for own in members for c in own))}
    mine = [order[cluster] for cluster in dict.fromkeys(c for own in owners for c in own)]
    value, draws = moments(parts, owners).pooled()[0], moments(parts, owners, weights[:, mine]).pooled()[0]
    return float(value[0]), draws


@study(
    17,
    "Does RAD help where rollouts disagree?",
    where="Fig. cohort-agreement, left; tab:diversity",
    requests=wanted,
    claims=(ACCURACY, ENTROPY, WITHIN, PARTIAL),
    needs=(VOTES,),
)
def disagreement(evidence: Evidence, options: Options) -> Findings:
    own = groups(of_pool(evidence.panels, "well-posed"), configuration)
    stacks = {name: one for name, panels in own.items() if len((one := stack(panels, problems)).table) > 2}
    if not stacks:
        return Findings(notes=("No configuration has three eligible problems: nothing is compared.",))
    rows, members = [s.table for s in stacks.values()], [s.problems for s in stacks.values()]
    everyone = frozenset(cluster for one in members for cluster in one)
    clusters = len(everyone)
    rng = np.random.default_rng(options.seed)
    weights = rng.multinomial(clusters, np.full(clusters, 1 / clusters), size=options.draws).astype(float)
    seen, drawn = moments(rows, members), moments(rows, members, weights)
    random = nulls(rows, NULLS, options.seed)
    decisions: list[ClaimDecision] = []
    notes = [
        f"A random located pick's correlations come from {NULLS} such selectors. Its advantage is 0 on average whatever the "
        "entropy, so that they lie around 0; RAD's are tested against their mean.",
        "Holding the rate fixed by a straight line leaves what is curved in it, and entropy is a curve of the rate. A secondary "
        "reading compares problems within tenths of the rate alone; it decides nothing.",
        "Between configurations the relation is largely structural: a selector that takes a fixed share of the headroom "
        "has it too (the paper says so).",
    ]
    for claim, value, sample, null in zip((WITHIN, PARTIAL), seen.pooled(), drawn.pooled(), random, strict=True):
        found = Quantity(float(value[0]), sample, everyone)
        _decide(decisions, notes, claim, found, float(np.mean(null)) + CORRELATION, CORRELATION)
    if len(stacks) >= FEWEST:
        for claim, value, sample in zip((ACCURACY, ENTROPY), seen.between(), drawn.between(), strict=True):
            found = Quantity(float(value[0]), sample, everyone)
            _decide(decisions, notes, claim, found, -BETWEEN if claim is ACCURACY else BETWEEN, BETWEEN)
    else:
        notes.append(f"{len(stacks)} configurations are too few for a correlation between them: {FEWEST} are needed.")
    tables = (
        _problem_table(list(stacks), rows, seen, drawn, random, within_bands(rows, members, weights)),
        _configuration_table(list(stacks), seen, drawn),
    )
    return Findings(tables, (_chart(list(stacks), list(own.values()), seen),), tuple(decisions), tuple(notes))


def _decide(
    decisions: list[ClaimDecision], notes: list[str], claim: Claim, found: Quantity, threshold: float, resolution: float
) -> None:
    """Add the decision, or a note where a correlation is not defined in every resample."""
    if not found.finite or not np.isfinite(threshold):
        notes.append(f"{claim.key} cannot be tested: entropy or advantage does not vary.")
        return
    rule = below if claim is ACCURACY else above
    decisions.append(rule(claim, found, unit="r", threshold=threshold, resolution=resolution))


def _problem_table(
    names: list[str],
    rows: list[Floats],
    seen: Moments,
    drawn: Moments,
    random: tuple[Floats, Floats],
    banded: tuple[float, Floats],
) -> Table:
    lines = [
        Row((Cell(name), Cell(len(own), "count"), *_pair(seen.products[:, g], drawn.products[:, g])), "here")
        for g, (name, own) in enumerate(zip(names, rows, strict=True))
    ]
    total = Cell(sum(map(len, rows)), "count")
    lines.append(Row((Cell("all, centred within"), total, *_pair(seen.products.sum(1), drawn.products.sum(1))), "here"))
    nulls_ = [shown(float(np.mean(null)), "number", interval(null)) for null in random]
    bands = (
        shown(banded[0], "number", interval(banded[1]), note="entropy does not vary"),
        missing("the bands hold it"),
    )
    lines.append(Row((Cell("all, centred within tenths of the rate"), total, *bands), "here"))
    lines.append(Row((Cell("a random located pick"), total, *nulls_), "here"))
    *models, pooled, partial = printed("diversity")
    none = missing("not printed")
    for row in models:
        lines.append(
            Row((Cell(row["model"]), Cell(int(row["n"]), "count"), Cell(float(row["r"]), "number"), none), "paper")
        )
    both = (Cell(float(pooled["r"]), "number"), Cell(float(partial["r"]), "number"))
    lines.append(Row((Cell("all, centred within"), Cell(int(pooled["n"]), "count"), *both), "paper"))
    heads = (Column("r(entropy, advantage)", "95% CI"), Column("given the rate", "95% CI"))
    title = "Problems: RAD's advantage and the entropy of answers"
    columns = (Column("configuration"), Column("problems"), *heads)
    return Table("disagreement-problems", title, columns, tuple(lines), sections="comparison")


def _pair(seen: Floats, drawn: Floats) -> list[Cell]:
    return [
        shown(float(value[0]), "number", interval(draws), note="entropy or advantage does not vary")
        for value, draws in zip(correlations(seen), correlations(drawn), strict=True)
    ]


def _configuration_table(names: list[str], seen: Moments, drawn: Moments) -> Table:
    lines = []
    for g, name in enumerate(names):
        entropy, rate, gain = (float(v) for v in seen.means[0, g])
        cells = (
            shown(rate, "percent"),
            shown(entropy, "number"),
            shown(gain, "points", interval(drawn.means[:, g, HIT])),
        )
        lines.append(Row((Cell(name), *cells), "here"))
    between = [shown(float(v[0]), "number", note="too few configurations") for v in seen.between()]
    lines.append(Row((Cell("r with delta-sel"), *between, shown(None, "points", note="itself")), "here"))
    both = (shown(PAPER["avg@coh"], "number"), shown(PAPER["entropy"], "number"))
    lines.append(Row((Cell("r with delta-sel"), *both, shown(None, "points", note="itself")), "paper"))
    columns = (Column("configuration"), Column("avg@coh"), Column("entropy (nats)"), Column("delta-sel", "95% CI"))
    title = "Configurations: RAD's gain, accuracy and entropy"
    return Table("disagreement-configurations", title, columns, tuple(lines), sections="comparison")


def _chart(names: list[str], panels: list[list[Panel]], seen: Moments) -> Chart:
    family = {name: own[0].family for own in panels for name in [own[0].configuration]}
    plots = []
    for column, label, scale in (
        (RATE, "located rollouts that are right (%)", 100),
        (ENT, "entropy of answers (nats)", 1),
    ):
        series = []
        for one in dict.fromkeys(family[name] for name in names):
            own = [g for g, name in enumerate(names) if family[name] == one]
            x = [scale * float(seen.means[0, g, column]) for g in own]
            y = [100 * float(seen.means[0, g, HIT]) for g in own]
            series.append(Series(one, x, y, labels=[names[g].removeprefix(one).strip() for g in own]))
        plots.append(Plot("points", x=label, y="delta-sel (points)", series=series))
    return Chart("disagreement", "Does RAD help where rollouts disagree?", plots, shared_y=True)

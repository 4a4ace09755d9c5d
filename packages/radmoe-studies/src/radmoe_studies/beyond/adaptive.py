"""Study 30: does stopping when the pick is settled beat a fixed number of rollouts at the same cost?

The rollouts of a problem arrive in many random orders. The online selector of `radmoe.selection.online` stops by its rule; adaptive
consistency stops by its Beta criterion over answers; DeepConf's online filter cuts rollouts short, and a race (`pruning.py`)
gives up those that are less likely than the first ones were. A fixed N picks among the first N. All see the same rollouts
in the same orders, and every token is counted, also of rollouts that were cancelled, cut or given up.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np

from radmoe.evaluation.table import Cell, Column, Row, Table, missing
from radmoe.selection.online import Stopping
from radmoe.selection.rule import Rule
from radmoe.types import PresetName
from radmoe_studies.arrivals import arrive, consistent, orders, picks, settled, votes
from radmoe_studies.base import Findings, Options, study
from radmoe_studies.decision import EFFECT, FEWEST, Claim, ClaimDecision, above, all_of, below, changed
from radmoe_studies.evidence import Evidence, Floats, Ints, Panel, Request
from radmoe_studies.needs import MANY
from radmoe_studies.online_filter import WindowLows, filtered, window_lows
from radmoe_studies.pooling import clusters
from radmoe_studies.pruning import WARM_UP, LogProbs, log_probs, prune
from radmoe_studies.report.figures import Chart, Plot, Series
from radmoe_studies.resample import Quantity, Resampled, resample
from radmoe_studies.subcohorts import SubcohortProblem, problem_key

SIZES = (64, 32, 16)  # the most rollouts: the largest of these that FEWEST problems have
PATIENCE = (2, 4, 8, 16, 32)
STANDARD = 8  # the default patience
THRESHOLDS = (0.8, 0.9, 0.95, 0.99)
USUAL = 0.95  # adaptive consistency's own threshold
LANES = 8  # rollouts side by side, of which those under way are cancelled
KEPT = (0.9, 0.1)  # of the warm-up, by DeepConf's two settings
RACES = (None, 8, 4, 2)  # patience among rollouts that finish a race; None begins all of them
LOSS = 0.005  # of accuracy: what stopping early may cost, and the least that it must gain to be better
SAVED = 0.5  # the share of the tokens that it may take at most
DOMAINS = ("math", "science", "code", "text")
PRESETS: tuple[PresetName, ...] = ("paper", "best")  # of `select`, by which the online selector and fixed N pick
DECIDED = ("math", "code")

_CASES = (
    f"over problems with as many rollouts as the most (64, or the largest of 64, 32, 16 that {FEWEST} problems have), all "
    "configurations pooled, RAD as in the paper, patience 8, one rollout at a time, 200 orders of arrival; bootstrap over problems."
)
BETTER = Claim(
    "adaptive.better-at-equal-tokens",
    "Stopping when the pick is settled picks better than a fixed N of the same cost.",
    "no number: the paper takes N as given",
    "not in the paper",
    "The online selector's accuracy minus that of a fixed N at the online selector's mean tokens (between two N, the mix of "
    f"both that costs as much) is above {100 * LOSS:g} points on math and on code, one-sided, {_CASES}",
    changed(EFFECT),
)
CHEAPER = Claim(
    "adaptive.half-the-tokens",
    "Stopping when the pick is settled takes half of the tokens and loses next to nothing.",
    "no number: the paper takes N as given",
    "not in the paper",
    f"On math and on code, the online selector's accuracy minus that of the most rollouts is above -{100 * LOSS:g} points, and "
    f"its tokens are below {SAVED:.0%} of theirs, each one-sided, {_CASES}",
)


class Arm(NamedTuple):
    """A way to stop: its name in tables, what it reads, the line of the figure that it is a point of."""

    name: str
    reads: str
    line: str = ""


ONLINE = tuple(Arm(f"online, patience {p}", "routing", "online") for p in PATIENCE)
CANCELLED = Arm(f"online, patience {STANDARD}, {LANES} at a time", "routing")
CONSISTENT = tuple(Arm(f"adaptive consistency, {t:g}", "answers", "adaptive consistency") for t in THRESHOLDS)
CONSISTENT_CANCELLED = Arm(f"adaptive consistency, {USUAL:g}, {LANES} at a time", "answers")
DEEPCONF = tuple(Arm(f"DeepConf online, keeps {kept:.0%}", "logprobs, answers", "DeepConf online") for kept in KEPT)
RACED = tuple(
    Arm("likelier than the warm-up" + ("" if p is None else f", patience {p}"), "routing, logprobs", "likelier")
    for p in RACES
)
ARMS = (*ONLINE, CANCELLED, *RACED, *CONSISTENT, CONSISTENT_CANCELLED, *DEEPCONF)
WIDTH = 3  # columns of an arm: right, tokens, rollouts


class Measured(NamedTuple):
    """Means over orders, one row per problem: [n, columns], with the problems that the rows are of."""

    table: Floats
    problems: list[Hashable]


def most_rollouts(panels: Sequence[Panel]) -> int:
    """The largest of SIZES that FEWEST problems have; 0 where there is none."""
    counts: dict[Hashable, int] = {}
    for panel in panels:
        for problem, count in zip(clusters(panel), panel.here.sum(1).tolist(), strict=True):
            counts[problem] = max(counts.get(problem, 0), count)
    return max((size for size in SIZES if sum(count >= size for count in counts.values()) >= FEWEST), default=0)


def request_of(panel: Panel, preset: PresetName) -> Request | None:
    """What a preset reads of a panel.

    None where the preset compares something else than routing, or fuses it by anything but a rank sum with a score of the panel.
    """
    setting = Rule(preset=preset).settle(panel.kind, panel.n)
    if setting.fusion is not None and (setting.fusion != "ranksum" or setting.confidence not in panel.scalars):
        return None
    return Request(setting.readout, setting.kernel) if setting.compare == "routing" else None


def measure(
    panel: Panel, preset: PresetName, most: int, options: Options, lows: WindowLows | None, sampled: LogProbs | None
) -> Measured:
    """What every arm and every fixed N do on the problems of a panel, in the mean over orders.

    Columns: the preset's hits at N = 1 to `most`, the tokens spent there, the majority's hits, then each arm's three.
    """
    request = request_of(panel, preset)
    assert request is not None
    settings = [Rule(preset=preset).settle(panel.kind, n) for n in range(1, most + 1)]
    k = np.array([setting.k for setting in settings])
    scalar = None if settings[0].fusion is None else panel.scalar(settings[0].confidence)
    read = panel.read(request)
    located = read.located & panel.here
    votable = panel.domain in ("math", "science")
    rows, problems = [], []
    for row, problem in enumerate(clusters(panel)):
        if panel.here[row].sum() < most:
            continue
        mine = np.flatnonzero(panel.here[row])[:most]
        inside = located[row, mine]
        S = read.values[row][np.ix_(mine[inside], mine[inside])]
        correct, answer = panel.correct[row, mine], panel.answer[row, mine]
        place = np.where(inside, np.cumsum(inside) - 1, -1)
        known = SubcohortProblem.of(S, correct[inside], answer[inside], None)
        begun = orders(most, options.samples, problem_key(panel, row), options.seed)
        lengths = panel.lengths[row, mine]
        lowest = panel.scalars["lowest-window"][row, mine] if lows is not None else None
        parts = None if lows is None else [lows.of(row)[int(i)] for i in mine]
        hits = np.concatenate((correct[inside], [False])).astype(np.float64)  # the last is for no pick

        one, many = arrive(begun, lengths, 1), arrive(begun, lengths, LANES)
        confidence = None if scalar is None else scalar[row, mine[inside]]
        made = picks(known, place, begun, one.rollouts, k, confidence)
        right = hits[made]
        right[:, 0] = correct[one.rollouts[:, 0]]  # of one rollout there is no choice
        columns = [right.mean(0), one.spent.mean(0)]
        cast = votes(answer, correct, one.rollouts)
        columns.append(cast.hit.mean(0) if votable else np.full(most, np.nan))

        here = inside[one.rollouts]
        columns += [_stopped(settled(made, here, Stopping(patience=p)), right, one.spent) for p in PATIENCE]
        beside = picks(known, place, begun, many.rollouts, k, confidence)
        stop = settled(beside, inside[many.rollouts], Stopping(patience=STANDARD))
        columns.append(_stopped(stop, hits[beside], many.spent))
        nothing = np.full(WIDTH, np.nan)
        running = None if sampled is None else sampled.running(row)[mine]
        for p in RACES:
            if running is None:
                columns.append(nothing)
                continue
            ran = prune(known, place, begun, lengths, running, k, confidence, patience=p)
            columns.append(np.array([hits[ran.picks].mean(), ran.spent.mean(), ran.finished.mean()]))
        if votable:
            columns += [_stopped(consistent(cast, t), cast.hit, one.spent) for t in THRESHOLDS]
            later = votes(answer, correct, many.rollouts)
            columns.append(_stopped(consistent(later, USUAL), later.hit, many.spent))
        else:
            columns += [nothing] * (len(THRESHOLDS) + 1)
        for kept in KEPT:
            if parts is None or lowest is None:
                columns.append(nothing)
                continue
            done = filtered(parts, lowest, lengths, correct, answer if votable else None, begun, kept=kept)
            columns.append(np.array([done.hit.mean(), done.spent.mean(), float(most)]))
        rows.append(np.concatenate(columns))
        problems.append(problem)
    width = 3 * most + WIDTH * len(ARMS)
    return Measured(np.array(rows) if rows else np.empty((0, width)), problems)


def _stopped(stop: Ints, right: Floats, spent: Ints) -> Floats:
    """What stopping after so many arrivals [O] gives in the mean: right picks, tokens and rollouts, from [O, N] each."""
    last = stop[:, None] - 1
    taken = [np.take_along_axis(values, last, 1).mean() for values in (right, spent)]
    return np.array([*taken, stop.mean()])


class Costs(NamedTuple):
    """A group of problems: means and draws of all columns, with the curve of fixed N at any cost."""

    means: Resampled
    most: int
    rows: int

    def arm(self, i: int) -> tuple[int, int, int]:
        """The columns of an arm: right, tokens, rollouts."""
        first = 3 * self.most + WIDTH * i
        return first, first + 1, first + 2

    def fixed_at(self, tokens: Floats, estimate: float) -> tuple[float, Floats]:
        """The accuracy that fixed numbers of rollouts reach at the same mean cost: for the estimate, and for each draw [R].

        `estimate` and `tokens` [R] are the mean costs in tokens; between two numbers of rollouts it is interpolated.
        """
        m = self.most
        value = float(np.interp(estimate, self.means.estimate[m : 2 * m], self.means.estimate[:m]))
        draws = np.array(
            [np.interp(t, row[m : 2 * m], row[:m]) for t, row in zip(tokens, self.means.draws, strict=True)]
        )
        return value, draws

    def gap(self, i: int) -> Quantity:
        """An arm's accuracy minus that of a fixed N of the same cost."""
        hit, tokens, _ = self.arm(i)
        value, draws = self.fixed_at(self.means.draws[:, tokens], float(self.means.estimate[tokens]))
        return self.means.quantity(self.means.estimate[hit] - value, self.means.draws[:, hit] - draws, [hit, tokens])

    def ratio(self, i: int) -> Quantity:
        """An arm's tokens as a share of those of the most rollouts."""
        _, tokens, _ = self.arm(i)
        whole = 2 * self.most - 1
        return self.means.quantity(
            self.means.estimate[tokens] / self.means.estimate[whole],
            self.means.draws[:, tokens] / self.means.draws[:, whole],
            [tokens],
        )

    def loss(self, i: int) -> Quantity:
        """An arm's accuracy minus that of the most rollouts."""
        return self.means.difference(self.arm(i)[0], self.most - 1)


def wanted(panel: Panel) -> list[Request]:
    if panel.domain not in DOMAINS:
        return []
    return [request for preset in PRESETS if (request := request_of(panel, preset)) is not None]


@study(
    30,
    "Does stopping when the pick is settled beat a fixed number of rollouts?",
    where="not there: it takes N as given",
    needs=(MANY,),
    requests=wanted,
    claims=(BETTER, CHEAPER),
)
def adaptive(evidence: Evidence, options: Options) -> Findings:
    panels = [panel for panel in evidence.panels if wanted(panel)]
    most = most_rollouts(panels)
    if not most:
        return Findings(
            notes=(f"Fewer than {FEWEST} problems have {SIZES[-1]} rollouts or more: nothing was measured.",)
        )
    groups: dict[str, list[Measured]] = {}
    for panel in panels:
        lows, sampled = window_lows(panel), log_probs(panel)
        for preset in (preset for preset in PRESETS if request_of(panel, preset) is not None):
            made = measure(panel, preset, most, options, lows, sampled)
            if len(made.table):
                groups.setdefault(_group(panel.domain, preset), []).append(made)
    costs = {}
    for name in (_group(domain, preset) for preset in PRESETS for domain in DOMAINS):
        if name in groups:
            table = np.concatenate([made.table for made in groups[name]])
            problems = [problem for made in groups[name] for problem in made.problems]
            costs[name] = Costs(resample(table, problems, resamples=options.draws, seed=options.seed), most, len(table))
    decisions, notes = _decide(costs)
    windows = ", ".join(str(window) for window in sorted({panel.setting.confidence_window for panel in panels}))
    notes.append(
        f"{options.samples} orders of arrival per problem, the first {most} rollouts of each. Fixed N and the online selector pick "
        f"as in the paper, or by the preset that is named; fixed N among the first N. Arms run one rollout at a time, or {LANES} side by side, where those under way at the stop are cancelled and "
        f"their tokens counted. Likelier than the warm-up: the first {WARM_UP} rollouts finish, and others are given up once they are "
        f"less likely than the median of these was after as many tokens. DeepConf's online filter: warm-up of 16, confidence windows of {windows} tokens, tokens of "
        "rollouts counted up to where they are cut; on code, which has no votes, it takes the most confident rollout."
    )
    charts = tuple(_chart(domain, one) for domain, one in costs.items())
    return Findings((_table(costs),), charts, tuple(decisions), tuple(notes))


def _group(domain: str, preset: PresetName) -> str:
    return domain if preset == "paper" else f"{domain}, preset {preset}"


def _reads(reads: str, group: str) -> str:
    """What a way to stop reads in a group: the preset best reads log-probabilities beside routing."""
    return "routing, logprobs" if reads == "routing" and "preset" in group else reads


def _decide(costs: dict[str, Costs]) -> tuple[list[ClaimDecision], list[str]]:
    i = PATIENCE.index(STANDARD)
    better, cheaper, lacking = [], [], []
    for domain in DECIDED:
        if domain not in costs or costs[domain].means.n < FEWEST:
            lacking.append(domain)
            continue
        own = costs[domain]
        better.append(above(BETTER, own.gap(i), unit="points", threshold=LOSS))
        cheaper.append(above(CHEAPER, own.loss(i), unit="points", threshold=-LOSS))
        cheaper.append(below(CHEAPER, own.ratio(i), unit="share", threshold=SAVED, resolution=0.1 * SAVED))
    if lacking:
        return [], [
            f"No claim was tested: fewer than {FEWEST} problems with enough rollouts on {' and '.join(lacking)}."
        ]
    return [all_of(BETTER, better), all_of(CHEAPER, cheaper)], []


def _table(costs: dict[str, Costs]) -> Table:
    rows = []
    for domain, own in costs.items():
        m = own.most
        for name, hit in ((f"fixed N = {m}", m - 1), (f"fixed N = {m}, majority", 3 * m - 1)):
            cells = (_cell(own.means.estimate[hit], "percent", own.means.draws[:, hit]),)
            cost = (Cell(round(float(own.means.estimate[2 * m - 1])), "count"), Cell(1.0, "percent"), Cell(m, "count"))
            reads = _reads("routing" if hit < m else "answers", domain)
            rows.append(Row((Cell(name), Cell(reads), *cost, *cells, missing("it is a fixed N")), domain))
        for i, arm in enumerate(ARMS):
            hit, tokens, rollouts = own.arm(i)
            if not np.isfinite(own.means.estimate[hit]):
                why = missing("no answers to count" if arm.reads == "answers" else "no top-k log-probabilities")
                rows.append(Row((Cell(arm.name), Cell(_reads(arm.reads, domain)), why, why, why, why, why), domain))
                continue
            rows.append(
                Row(
                    (
                        Cell(arm.name),
                        Cell(_reads(arm.reads, domain)),
                        Cell(round(float(own.means.estimate[tokens])), "count"),
                        Cell(own.ratio(i).estimate, "percent"),
                        Cell(round(float(own.means.estimate[rollouts])), "count"),
                        _cell(own.means.estimate[hit], "percent", own.means.draws[:, hit]),
                        _cell(own.gap(i).estimate, "points", own.gap(i).draws),
                    ),
                    domain,
                )
            )
    columns = (
        Column("way to stop"),
        Column("reads", text=True),
        *map(Column, ("tokens", "of most (%)", "rollouts")),
        Column("right", "95% CI"),
        Column("- fixed N of the same tokens", "95% CI"),
    )
    sizes = ", ".join(f"{own.rows:,} rows of {own.means.n:,} problems in {domain}" for domain, own in costs.items())
    notes = (f"Tokens and rollouts per problem, in the mean over problems and orders: {sizes}.",)
    return Table("adaptive", "Ways to stop, and what they cost", columns, tuple(rows), notes, "comparison")


def _cell(value: float, unit: str, draws: Floats) -> Cell:
    if not np.isfinite(value):
        return missing("no answers to count")
    low, high = np.quantile(draws, [0.025, 0.975])
    return Cell(float(value), unit, float(low), float(high))  # type: ignore[arg-type]


def _chart(domain: str, own: Costs) -> Chart:
    m, estimate = own.most, own.means.estimate
    sizes = [n for n in (2, 4, 8, 16, 32, 64) if n <= m]
    series = [
        Series("fixed N", [estimate[m + n - 1] for n in sizes], [100 * estimate[n - 1] for n in sizes]),
        Series(
            "fixed N, majority", [estimate[m + n - 1] for n in sizes], [100 * estimate[2 * m + n - 1] for n in sizes]
        ),
    ]
    lines: dict[str, list[tuple[float, float]]] = {}
    for i, arm in enumerate(ARMS):
        hit, tokens, _ = own.arm(i)
        if arm.line and np.isfinite(estimate[hit]):
            lines.setdefault(arm.line, []).append((float(estimate[tokens]), 100 * float(estimate[hit])))
    for name, points in lines.items():
        x, y = zip(*sorted(points), strict=True)
        series.append(Series(name, x, y))
    series = [
        Series(one.name, [float(x) for x in one.x], [float(y) for y in one.y])
        for one in series
        if np.isfinite(one.y).all()
    ]
    plot = Plot("lines", domain, "tokens per problem", "right (%)", series=series)
    note = "Points are N = 2, 4, ..., patience 2 to 32 (a race: to all), thresholds .8 to .99, 90% and 10% kept. Higher and further left is better."
    return Chart(
        f"adaptive-{domain.replace(', preset ', '-')}", "Accuracy by tokens, one rollout at a time", (plot,), note=note
    )

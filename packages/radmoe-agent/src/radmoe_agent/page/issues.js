// The page of `radmoe agent select`: every issue with the patch that was picked, and one issue with all that was to choose from.

const METHOD_PARTS = {
  "patch-overlap": ["overlap", "how much a patch has in common, by pairs of words, with all others that can be submitted, from 0 to 1; equal patches count as often as they were left"],
  rad: ["density", "how alike the routing of a trajectory's boundaries is, as one set of experts, to that of its nearest neighbours"],
  likelihood: ["likelihood", "the mean log-probability of the tokens that the model sampled"],
};
const partsOf = (method) => method.split("+").filter((name) => METHOD_PARTS[name]);
const letterOf = (k) => (k < 26 ? String.fromCharCode(65 + k) : `${k + 1}`);
const number = (value, digits) => (value === null || value === undefined ? "–" : value.toFixed(digits));
const count = (value) => (value === null || value === undefined ? "–" : value.toLocaleString("en"));

function resolvedMark(value) {
  if (value === true) return el("span", { class: "tick" }, " ✓ resolved");
  if (value === false) return el("span", { class: "cross" }, " ✗ not resolved");
  return null;
}

// Why trajectories were ruled out before anything was chosen, and how many for each reason where there are several.
function reasonWords(reasons) {
  const counts = new Map();
  for (const reason of reasons) counts.set(reason, (counts.get(reason) ?? 0) + 1);
  if (counts.size === 1) return visible(reasons[0]);
  return [...counts].sort((x, y) => y[1] - x[1]).map(([reason, times]) => `${visible(reason)} (${times.toLocaleString("en")})`).join("; ");
}

function issuesPage(index, state, actions) {
  const rows = index.problems.map((entry, place) => ({ entry, place }));
  const judged = index.problems.some((entry) => entry.judged);
  const cell = (value) => el("td", { class: "number" }, value);
  const columns = [
    { title: "#", number: true, value: (row) => row.place, cell: (row) => cell(`${row.place + 1}`) },
    { title: "issue", value: (row) => row.entry.id, cell: (row) => el("th", { scope: "row" }, el("a", { href: `#problem/${row.place + 1}` }, theirs(row.entry.id, 60))) },
    { title: "picked", number: true, value: (row) => row.entry.pick, cell: (row) => el("td", { class: "number" }, row.entry.pick === null ? "none" : `trajectory ${row.entry.pick}`, resolvedMark(row.entry.resolved)) },
    { title: "left the same patch", number: true, value: (row) => (row.entry.usable ? row.entry.same / row.entry.usable : null), cell: (row) => cell(row.entry.usable ? `${row.entry.same} of ${row.entry.usable}` : "–") },
    { title: "different patches", number: true, value: (row) => row.entry.patches, cell: (row) => cell(count(row.entry.patches)) },
    { title: "can be submitted", number: true, value: (row) => row.entry.usable / row.entry.rollouts, cell: (row) => cell(`${row.entry.usable} of ${row.entry.rollouts}`) },
    judged ? { title: "resolved", number: true, value: (row) => (row.entry.judged ? row.entry.right / row.entry.judged : null), cell: (row) => cell(row.entry.judged ? `${row.entry.right} of ${row.entry.judged}` : "–") } : null,
    { title: "steps of the pick", number: true, value: (row) => row.entry.steps, cell: (row) => cell(count(row.entry.steps)) },
    { title: "lines it changes", number: true, value: (row) => row.entry.lines, cell: (row) => cell(count(row.entry.lines)) },
  ].filter(Boolean);
  const table = sortableTable("Issues", columns, rows, {
    class: "problems",
    row: (row) => el("tr", { "data-place": row.place, onclick: (event) => event.target.closest("a") || actions.open(row.place) }, columns.map((column) => column.cell(row))),
  });
  const shown = el("span", { class: "count", role: "status" });
  const search = el("input", { type: "search", id: "search", placeholder: "find issues  /", "aria-label": "Find issues", value: state.search, oninput: () => apply() });
  const apply = () => {
    actions.filter(search.value, "all", "");
    const wanted = search.value.trim().toLowerCase();
    replaceChildren(shown, plural(table.filter((row) => row.entry.id.toLowerCase().includes(wanted)), "issue"));
  };
  apply();
  const total = index.problems.reduce((sum, entry) => sum + entry.rollouts, 0);
  const left = index.problems.flatMap((entry) => entry.left);
  const method = index.methods[0].name;
  const node = el("article", { class: "overview" },
    el("header", {},
      el("h1", {}, `${plural(index.problems.length, "issue")}, ${plural(total, "trajectory")}`),
      el("p", { class: "why" }, `An agent ran several times on every issue, and one patch of each is submitted: it is picked by ${method} among the trajectories that can be submitted. ${judged ? "Hidden tests judged them afterwards; nothing that picks has seen what they said." : "No verdict of hidden tests is on this page, so nothing here says which patch is right."}`),
      el("p", { class: "note" }, left.length ? `${(total - left.length).toLocaleString("en")} of ${plural(total, "trajectory")} can be submitted. The others were ruled out before anything was chosen: ${reasonWords(left)}.` : `All ${plural(total, "trajectory")} can be submitted.`)),
    el("section", {}, el("h2", {}, "Issues"), el("p", { class: "filter" }, search, shown), table.node),
    index.tables.length ? el("section", {}, el("h2", {}, "How well picking did"), index.tables.map((one) => evaluationTable(one, true))) : null,
    el("section", {}, el("h2", {}, "Words"), legendNode(index)));
  const step = (by) => {
    const links = [...node.querySelectorAll("table.problems tbody a")];
    const at = links.indexOf(document.activeElement);
    links[Math.max(0, Math.min(links.length - 1, at < 0 ? 0 : at + by))]?.focus();
  };
  return { node, step, search };
}

function issuePage(problem, index, state, actions) {
  const { candidates, patches } = problem;
  const order = [...patches.flatMap((patch) => patch.runs.map((run) => problem.indexOf(run))), ...candidates.flatMap((one, i) => (one.patch === null ? [i] : []))];
  let a = state.rollout ?? problem.pick ?? order[0];
  const choose = (i) => {
    a = i;
    show();
    actions.selected(a, a);
  };
  const panels = [patchesPanel(problem, choose), trajectoriesPanel(problem, order, choose)];
  const show = () => panels.forEach((one) => one.select(a));
  const left = candidates.flatMap((one) => (one.problem === null ? [] : [one.problem.replace(/ \(.*/s, "")]));
  const sentences = [
    problem.pick === null ? "Nothing is submitted." : `Patch A is submitted, that of trajectory ${problem.number(problem.pick)}.`,
    `${capital(problem.why)}.`,
    left.length ? `${left.length} of ${plural(problem.rollouts, "trajectory")} ${left.length === 1 ? "was" : "were"} ruled out before anything was chosen: ${reasonWords(left)}.` : `All ${plural(problem.rollouts, "trajectory")} can be submitted.`,
    judgedWords(problem),
  ].filter(Boolean);
  const parts = partsOf(problem.method);
  const node = el("article", { class: "problem issue" },
    el("p", { class: "kicker" }, `Issue ${problem.place + 1} of ${index.problems.length} · `, theirs(problem.model, 80), ` · picked by ${problem.method}`),
    el("h1", {}, theirs(problem.id, 120)),
    el("p", { class: "why" }, el("strong", {}, sentences[0]), ...sentences.slice(1).flatMap((sentence) => [" ", theirs(sentence, 1000)])),
    el("p", { class: "about" }, parts.map((name) => `${capital(METHOD_PARTS[name][0])} is ${METHOD_PARTS[name][1]}. `), parts.length > 1 ? "Their ranks are added. " : "", "The highest is picked."),
    el("details", { class: "prompt", open: true }, el("summary", {}, problem.written || !problem.issue ? "The issue" : "What the first step was given, the issue in it"), textBlock(problem.issue || "(not recorded: radmoe agent select --data has it)"),
      problem.issue_cut ? el("p", { class: "about" }, `${plural(problem.issue_cut, "character")} left out of this page`) : null),
    panels.map((one) => one.node));
  const step = (by) => {
    const at = order.indexOf(a) + by;
    if (at >= 0 && at < order.length) choose(order[at]);
  };
  return { node, show, step, toPick: () => problem.pick !== null && choose(problem.pick) };
}

function judgedWords(problem) {
  const known = (problem.resolved ?? []).filter((one) => one !== null);
  if (!known.length) return "";
  const pick = problem.pick === null ? null : problem.resolved[problem.pick];
  const words = pick === null ? "did not judge it" : pick ? "say that it resolves the issue" : "say that it does not resolve the issue";
  return `The hidden tests, which nothing that picks has seen, ${words}; ${known.filter(Boolean).length} of ${plural(known.length, "trajectory")} do.`;
}

// The different patches as a list, and two of them side by side: the one that is submitted and another.
function patchesPanel(problem, choose) {
  const { candidates, patches } = problem;
  const best = (patch, name) => patch.runs.map((run) => candidates[problem.indexOf(run)][name]).filter((value) => value !== null).sort((x, y) => y - x)[0];
  const usable = patches.filter((patch) => patch.problem === null).length;
  const decides = partsOf(problem.method).map((name) => METHOD_PARTS[name][0]);
  const head = (word) => el("th", { scope: "col", class: "number" }, word, decides.includes(word) ? el("span", { class: "decides" }, " decides") : null);
  const rows = patches.map((patch, k) => {
    const first = problem.indexOf(patch.runs[0]);
    const verdicts = [...new Set(patch.runs.map((run) => problem.resolved?.[problem.indexOf(run)] ?? null))];
    const numbers = patch.problem === null
      ? [el("td", { class: "number" }, number(best(patch, "overlap"), 2)), el("td", { class: "number" }, number(best(patch, "likelihood"), 3)), el("td", { class: "number" }, number(best(patch, "density"), 3))]
      : [el("td", { colspan: "3" }, "cannot be submitted: ", theirs(patch.problem, 160))];
    return el("tr", { class: patch.problem === null ? null : "left", onclick: () => choose(first) },
      el("th", { scope: "row" }, button(letterOf(k), `Compare patch ${letterOf(k)}`, () => {}), k === 0 && problem.pick !== null ? el("span", { class: "badge pick" }, "submitted") : null),
      el("td", { class: "number" }, `${patch.runs.length}`),
      el("td", {}, patch.runs.join(", ")), ...numbers,
      el("td", { class: "number" }, count(candidates[first].patch_lines)),
      problem.resolved ? el("td", {}, verdicts.length === 1 ? resolvedMark(verdicts[0]) : null) : null);
  });
  const table = el("table", { class: "patches" },
    el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "patch"), el("th", { scope: "col", class: "number" }, "how often"), el("th", { scope: "col" }, "trajectories"),
      head("overlap"), head("likelihood"), head("density"), el("th", { scope: "col", class: "number" }, "lines"), problem.resolved ? el("th", { scope: "col" }, "hidden tests") : null)),
    el("tbody", {}, rows));
  const sides = el("div", { class: "sides" });
  const node = el("section", { class: "panel" }, el("h2", {}, `Patches: ${plural(patches.length, "different one")}, ${usable === patches.length ? "all" : usable} of them can be submitted`),
    el("p", { class: "about" }, "Equal patches stand together. Likelihood and density are those of the best trajectory that left the patch. Click a patch to see it beside the submitted one; a bar at a line's left says that only one of the two has it."),
    patches.length ? scroller("Patches", table) : el("p", {}, "No trajectory left a patch."), sides);
  let shown = null;
  const select = (i) => {
    const own = candidates[i].patch;
    const other = own !== null && own > 0 ? own : patches.length > 1 ? 1 : null;
    rows.forEach((row, k) => {
      row.classList.toggle("chosen-a", k === 0);
      row.classList.toggle("chosen-b", k === other);
    });
    if (shown === (shown = `${other}`) || !patches.length) return;
    const [left, right] = [patches[0], other === null ? null : patches[other]].map((patch) => patch && patch.text.split("\n"));
    const pieces = right === null ? [{ kind: "same", words: left }] : diffWords(left, right).pieces;
    replaceChildren(sides, patchNode(problem, 0, pieces, "left"), right === null ? el("p", { class: "about" }, "No other patch was left.") : patchNode(problem, other, pieces, "right"));
  };
  return { node, select };
}

function patchNode(problem, k, pieces, side) {
  const patch = problem.patches[k];
  const box = scroller(`Patch ${letterOf(k)}`);
  box.classList.add("text", "patch");
  for (const piece of pieces) {
    if (piece.kind !== "same" && piece.kind !== side) continue;
    for (const line of piece.words) {
      const kind = /^(diff|index|---|\+\+\+|@@|new|deleted|similarity|rename|old)/.test(line) ? "place" : { "+": "added", "-": "removed" }[line[0]] ?? "";
      const [nodes] = visibleNodes(line, 0, line.length, escapesIn(line, true), 0);
      box.append(el("div", { class: `code ${kind}${piece.kind === side && kind !== "place" ? " only" : ""}` }, ...nodes, line ? null : "\u00a0"));
    }
  }
  if (patch.cut) box.append(el("span", { class: "gap" }, `${plural(patch.cut, "character")} left out of this page`));
  const state = k === 0 && problem.pick !== null ? el("span", { class: "badge pick" }, "submitted") : patch.problem === null ? null : theirs(patch.problem, 200);
  return el("div", {}, el("p", { class: "line" }, el("strong", {}, `Patch ${letterOf(k)}`), state, el("span", {}, `${patch.runs.length === 1 ? "trajectory" : "trajectories"} ${patch.runs.join(", ")}`)), box);
}

// Every trajectory as a bar of its tokens, cut where a step begins and marked where its routing was compared; one of them step by step.
function trajectoriesPanel(problem, order, choose) {
  const { candidates } = problem;
  const longest = Math.max(1, ...order.map((i) => problem.length(i)));
  const picked = problem.pick === null ? [] : candidates[problem.pick].neighbours;
  const rows = new Map();
  const bars = el("div", { class: "bars" }, order.map((i) => {
    const [one, steps, compared] = [candidates[i], stepsOf(problem, i), comparedOf(problem, i)];
    const drawing = svg("svg", { viewBox: `0 0 ${longest} 10`, preserveAspectRatio: "none", "aria-hidden": "true" },
      steps.map((step, k) => {
        const bar = svg("rect", { x: step.start, y: 1, width: step.stop - step.start, height: 8, class: k % 2 ? "turn odd" : "turn" });
        bar.addEventListener("mousemove", (event) => tip.show(event, [`step ${k + 1} of ${steps.length}`, plural(step.stop - step.start, "token"), boundaryWords(one, step)]));
        bar.addEventListener("mouseleave", () => tip.hide());
        return bar;
      }),
      compared.map((at) => svg("line", { x1: at, x2: at, y1: 0, y2: 10, class: one.fired === null ? "boundary unread" : "boundary" })));
    const facts = [
      one.patch === null ? null : el("span", { class: "letter-of" }, `patch ${letterOf(one.patch)}`),
      i === problem.pick ? el("span", { class: "badge pick" }, "submitted") : picked.includes(one.run) ? el("span", { class: "badge" }, "routing nearest to it") : null,
      problem.resolved ? resolvedMark(problem.resolved[i]) : null,
      one.steps === null ? "no routing" : `${plural(one.steps, "step")}, ${one.steps_without_boundary ? `${one.steps_without_boundary} without a boundary, ` : ""}${plural(one.tokens, "token")}`,
      one.problem === null ? null : theirs(one.problem, 90),
    ];
    const row = el("div", { class: "bar-row trajectory" }, button(`${one.run}`, `Show trajectory ${one.run}`, () => choose(i)), el("span", { class: "facts" }, facts.filter(Boolean)), drawing);
    row.addEventListener("click", (event) => event.target.closest("button") || choose(i));
    rows.set(i, row);
    return row;
  }));
  const facts = el("p", { class: "line" });
  const list = el("ol", { class: "turns" });
  const node = el("section", { class: "panel" }, el("h2", {}, "Trajectories, step by step"),
    el("p", { class: "about" }, `A bar is as long as the tokens that the agent generated, and a new shade is a new step. A mark is a boundary, where thinking ends and acting begins: its routing was read (${visible(problem.readout ?? "no routing")}). All of a trajectory's, as one set, are compared with those of the others that can be submitted; a faint mark is a boundary that was not. ${partsOf(problem.method).includes("rad") ? "" : `That decided nothing here, where ${problem.method} picked. `}Click a trajectory to read its steps.`),
    scroller("Steps of every trajectory", bars), facts, list);
  const select = (i) => {
    for (const [k, row] of rows) {
      row.classList.toggle("chosen", k === i);
      row.querySelector("button").setAttribute("aria-pressed", k === i ? "true" : "false");
    }
    const one = candidates[i];
    replaceChildren(facts, el("strong", {}, `Trajectory ${one.run}`),
      ...[
        one.status ? el("span", {}, "ended with ", theirs(one.status, 60)) : null,
        `overlap ${number(one.overlap, 2)}`, `likelihood ${number(one.likelihood, 3)}`, `density ${number(one.density, 3)}`,
        one.neighbours.length ? `routing nearest to ${one.neighbours.join(", ")}` : null,
        one.fired === null ? null : `${count(one.fired)} (layer, expert) pairs at its boundaries`,
        ...one.notes.map((note) => theirs(note, 300)), one.problem === null ? null : theirs(one.problem, 300),
      ].filter(Boolean).map((fact) => (fact.nodeType ? fact : el("span", {}, fact))));
    const texts = problem.acts[i];
    replaceChildren(list, stepsOf(problem, i).map((step, k) => el("li", {},
      el("p", { class: "line" }, el("strong", {}, `Step ${k + 1}`), el("span", {}, plural(step.stop - step.start, "token")), el("span", {}, boundaryWords(one, step))),
      texts === null ? (k === 0 ? el("p", { class: "about" }, "So many steps are on this page that it has the texts of the submitted trajectory and of the best other alone.") : null) : textBlock(texts[k]))));
  };
  return { node, select };
}

// What became of a step's boundary: nothing is compared of a trajectory that was ruled out, or whose routing could not be read.
function boundaryWords(candidate, step) {
  if (!step.compared.length) return "without a boundary: not compared";
  return candidate.fired === null ? "boundary not compared" : "boundary compared";
}

function comparedOf(problem, i) {
  const { compared_begin: begins, compared } = problem.arrays;
  return Array.from(compared.subarray(begins[i], begins[i + 1]));
}

function stepsOf(problem, i) {
  const { step_begin: begins, step_start: starts } = problem.arrays;
  const own = Array.from(starts.subarray(begins[i], begins[i + 1]));
  const compared = comparedOf(problem, i);
  return own.map((start, k) => {
    const stop = own[k + 1] ?? problem.length(i);
    return { start, stop, compared: compared.filter((at) => at >= start && at < stop) };
  });
}

const ISSUE_WORDS = () => [
  ["Trajectory", "One complete run of an agent on an issue, step by step: it thinks, acts, and reads what came of it. It ends with a patch, or without one."],
  ["Can be submitted", "A trajectory that left a patch and came to its end. Where the repository is at hand, the patch also applies and passes the tests that the repository ships. Others are ruled out before anything is chosen."],
  ["Routing, boundary", "The model has many small parts, its experts, and uses a few of them for every token. A boundary is where the agent passes from thinking to acting; which experts it used at all its boundaries is a trajectory's routing. A basin is a group of trajectories whose routing is most alike."],
  ["Overlap, likelihood, density", Object.values(METHOD_PARTS).map(([name, meaning]) => `${capital(name)}: ${meaning}.`).join(" ")],
];

Object.assign(PAGES, { overview: issuesPage, problem: issuePage, words: ISSUE_WORDS });

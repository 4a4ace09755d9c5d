// One problem: the sentence that says what was picked and why, the panels, and the tabs on the selected rollouts.

const TABS = [
  ["text", "Text", textTab],
  ["compare", "Side by side", compareTab],
  ["experts", "Experts", expertsTab],
  ["turns", "Turns", timelineTab],
];

function problemPage(problem, index, state, actions) {
  const view = problem.views.find((one) => one.readout === state.readout) ?? problem.views[0] ?? null;
  const entry = index.problems[problem.place];
  const compared = view !== null && view.compared;
  const first = view?.pick ?? 0;
  let a = state.rollout ?? first;
  let b = state.other ?? (view ? view.opposite(a) : Math.min(1, problem.rollouts - 1));
  const choose = {
    ...actions,
    select(nextA, nextB) {
      if (nextA !== null) {
        if (nextB === null && nextA === b) b = a === nextA && view ? view.opposite(nextA) : a;
        a = nextA;
      }
      if (nextB !== null) b = nextB;
      show();
      actions.selected(a, b);
    },
  };
  const panels = [];
  const rollouts = rolloutsPanel(problem, view, choose);
  if (compared) {
    const colouring = problem.arrays.correct === undefined ? "basin" : state.colouring;
    panels.push(matrixPanel(problem, view, choose), mapPanel(problem, view, choose, colouring));
  }
  panels.push(rollouts);
  const available = TABS.filter(([key]) => (key !== "experts" || view) && (key !== "turns" || problem.kind === "agent" || problem.arrays.step_begin));
  let tab = available.some(([key]) => key === state.tab) ? state.tab : "text";
  const content = el("div", { class: "tab-content", role: "tabpanel", id: "tab-content", "aria-labelledby": `tab-${tab}` });
  const tabs = available.map(([key, word]) => el("button", {
    type: "button", role: "tab", id: `tab-${key}`, "aria-controls": "tab-content", onclick: () => openTab(key),
  }, word));
  const made = new Map();
  const other = el("span", {});
  const openTab = (key) => {
    tab = key;
    actions.tab(key);
    show();
  };
  const show = () => {
    for (const one of panels) one.select(a, b);
    tabs.forEach((node, k) => {
      const chosen = available[k][0] === tab;
      node.setAttribute("aria-selected", chosen ? "true" : "false");
      node.tabIndex = chosen ? 0 : -1;
    });
    content.setAttribute("aria-labelledby", `tab-${tab}`);
    if (!made.has(tab)) made.set(tab, available.find(([key]) => key === tab)[2](problem, view, choose));
    const component = made.get(tab);
    replaceChildren(content, component.node);
    component.select(a, b);
    const needsOther = tab === "compare" || tab === "experts";
    const options = rollouts.order.map((i) => [String(i), `${NOUNS.rollout} ${problem.number(i)}${view && i === view.pick ? " (pick)" : ""}`]);
    replaceChildren(other, needsOther
      ? [choiceOf(options, String(a), (value) => choose.select(Number(value), null), "A"), " against ", choiceOf(options, String(b), (value) => choose.select(null, Number(value)), "B")]
      : null);
  };
  tabs.forEach((node, k) => node.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.stopPropagation();
    const next = (k + step + tabs.length) % tabs.length;
    openTab(available[next][0]);
    tabs[next].focus();
  }));
  const pool = index.pools[entry.pool];
  const why = view ? view.why : ["Nothing was selected.", "No marker was found that says where an answer begins, or no routing was kept there."];
  const unlike = view && state.readout && view.readout !== state.readout
    ? el("p", { class: "note" }, `Fewer than two ${several(NOUNS.rollout)} of this ${NOUNS.problem} can be compared at `, theirs(state.readout), "; it is shown as ", theirs(view.readout), " reads it.")
    : null;
  const node = el("article", { class: "problem" },
    unlike,
    el("p", { class: "kicker" }, `${capital(NOUNS.problem)}${state.single ? "" : ` ${problem.place + 1} of ${index.problems.length}`}`, pool ? [" · ", theirs(pool.name, 160)] : null, problem.kind ? ` · ${problem.kind}` : null, view ? [" · read at ", theirs(view.readout)] : null),
    el("h1", {}, theirs(problem.id, 120)),
    el("div", { class: "problem-head" },
      el("div", {},
        el("p", { class: "why" }, el("strong", {}, theirs(why[0])), ...why.slice(1).flatMap((sentence) => [" ", theirs(sentence, 1000)])),
        promptNode(problem),
        el("details", { class: "words" }, el("summary", {}, "What do these words mean?"), wordList(index))),
      methodsNode(problem, index, view, choose)),
    el("div", { class: compared ? "panels" : "panels few" }, panels.map((one) => one.node)),
    el("section", { class: "panel detail" },
      el("div", { class: "tab-bar" }, el("div", { class: "tabs", role: "tablist", "aria-label": `Views of the selected ${several(NOUNS.rollout)}` }, tabs), other),
      content));
  const step = (by) => {
    const at = rollouts.order.indexOf(a) + by;
    if (at >= 0 && at < rollouts.order.length) choose.select(rollouts.order[at], null);
  };
  const redraw = () => [...panels, ...made.values()].forEach((one) => one.draw?.());
  return { node, show, step, redraw, toPick: () => view?.pick !== null && view && choose.select(view.pick, null) };
}

function promptNode(problem) {
  if (problem.prompt === null) return null;
  const rest = problem.prompt_length - Array.from(problem.prompt).length;
  return el("details", { class: "prompt", open: true }, el("summary", {}, "What was asked"), textBlock(problem.prompt),
    rest > 0 ? el("p", { class: "about" }, `${plural(rest, "character")} left out of this page (radmoe report --full-text keeps them)`) : null);
}

// What every method picked here, and whether that is right.
function methodsNode(problem, index, view, actions) {
  const shown = index.methods.filter((method) => problem.hits[method.name] !== undefined);
  if (!shown.length) return null;
  const chip = (method) => {
    const [pick, hit] = [problem.picks[method.name], problem.hits[method.name]];
    const word = pick === undefined ? percent(hit) : pick === null ? "abstains" : `${problem.number(pick)} ${hit ? "✓" : "✗"}`;
    const kind = pick === undefined ? "" : hit ? " right" : " wrong";
    const label = el("span", {}, visible(method.label.replace("@N", `@${problem.rollouts}`)));
    const title = `${method.name}: reads ${method.reads.join(", ")}${pick === undefined ? "; one of several is drawn, and this is how often that is right" : ""}`;
    return el("li", {}, pick === undefined || pick === null
      ? el("span", { class: `chip${kind}`, title }, label, el("b", {}, word))
      : el("button", { type: "button", class: `chip${kind}`, title, onclick: () => actions.select(pick, null) }, label, el("b", {}, word)));
  };
  const main = MAIN_METHODS.flatMap((name) => shown.filter((method) => method.name === name));
  const rest = shown.filter((method) => !main.includes(method));
  return el("section", { class: "methods" }, el("h2", {}, `Which ${NOUNS.rollout} each method picks`),
    view && view !== problem.views[0] ? el("p", { class: "about" }, "Where they read routing, they read it at ", theirs(problem.views[0].readout), ", as the tables do.") : null,
    el("ul", { class: "chips" }, main.map(chip)),
    rest.length ? el("details", {}, el("summary", {}, plural(rest.length, "more method")), el("ul", { class: "chips" }, rest.map(chip))) : null);
}

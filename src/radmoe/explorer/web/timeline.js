// An agent's turns: every rollout as a bar of its tokens, cut where a step or an action begins.

function timelineTab(problem, view, actions) {
  const order = view ? view.order() : Array.from({ length: problem.rollouts }, (_, i) => i);
  const longest = Math.max(...order.map((i) => problem.length(i)));
  const rows = new Map();
  const bars = el("div", { class: "bars" }, order.map((i) => {
    const turns = problem.turns(i);
    const drawing = svg("svg", { viewBox: `0 0 ${longest} 10`, preserveAspectRatio: "none", "aria-hidden": "true" }, turns.map((turn, k) => {
      const bar = svg("rect", { x: turn.start, y: 0, width: Math.max(turn.stop - turn.start, 0), height: 10, class: k % 2 ? "turn odd" : "turn" });
      bar.addEventListener("mousemove", (event) => tip.show(event, turnLines(turn, k, turns.length)));
      bar.addEventListener("mouseleave", () => tip.hide());
      bar.addEventListener("click", () => actions.select(i, null));
      return bar;
    }));
    const row = el("div", { class: "bar-row" },
      button(`${problem.number(i)}`, `Show ${NOUNS.rollout} ${problem.number(i)}`, () => actions.select(i, null)),
      drawing, el("span", { class: "count" }, plural(turns.length, "turn")));
    rows.set(i, row);
    return row;
  }));
  const list = el("ol", { class: "turns" });
  const head = el("div", { class: "facts" });
  const select = (a) => {
    for (const [i, row] of rows) row.classList.toggle("chosen", i === a);
    replaceChildren(head, rolloutFacts(problem, view, a));
    replaceChildren(list, problem.turns(a).map((turn, k) => el("li", {},
      el("p", { class: "line" }, el("strong", {}, `Turn ${k + 1}`), el("span", {}, `tokens ${turn.start.toLocaleString("en")} to ${(turn.stop - 1).toLocaleString("en")}`)),
      turn.given ? el("details", {}, el("summary", {}, `was given ${plural(turn.given, "token")}`), textBlock(turn.givenText)) : null,
      textBlock(textBetween(problem, a, turn.start, turn.stop)))));
  };
  const recorded = problem.arrays.step_begin !== undefined;
  const about = recorded
    ? `Every bar is a ${NOUNS.rollout}, as long as the tokens it generated; a new shade is a new turn of the model.`
    : `Every bar is a ${NOUNS.rollout}, as long as its tokens; a new shade begins at each action that was found in its text. Steps were not recorded.`;
  const node = el("div", {}, el("p", { class: "about" }, about), scroller(`Turns of every ${NOUNS.rollout}`, bars), head, list);
  return { node, select };
}

function turnLines(turn, k, total) {
  const lines = [`turn ${k + 1} of ${total}`, `generated ${plural(turn.stop - turn.start, "token")}`];
  if (turn.given) lines.push(`was given ${plural(turn.given, "token")} before`);
  return lines;
}

// The kept text of tokens [start, stop) of a rollout.
function textBetween(problem, i, start, stop) {
  const parts = [];
  let behind = start;
  for (const stretch of problem.stretches(i)) {
    const [first, last] = [Math.max(start, stretch.start), Math.min(stop, stretch.stop)];
    if (first >= last) continue;
    if (first > behind) parts.push(`[${plural(first - behind, "token")} left out]`);
    behind = last;
    parts.push(stretch.texts.slice(first - stretch.start, last - stretch.start).join(""));
  }
  if (stop > behind) parts.push(`[${plural(stop - behind, "token")} left out]`);
  return parts.join("");
}

// Several lines of somebody else's text.
function textBlock(text) {
  const [nodes] = visibleNodes(text, 0, text.length, escapesIn(text, true), 0);
  return el("div", { class: "text plain", tabindex: "0" }, ...nodes); // it may scroll, which takes the keyboard to it
}

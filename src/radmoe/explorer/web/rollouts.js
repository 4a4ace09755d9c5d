// The rollouts as a list, in the order of the view: basin by basin, then those that were not compared.

function rolloutsPanel(problem, view, actions) {
  const order = view ? view.order() : Array.from({ length: problem.rollouts }, (_, i) => i);
  const labelled = problem.arrays.answer !== undefined;
  const likely = problem.arrays.likelihood !== undefined;
  const densities = order.map((i) => (view ? view.meanSimilarity(i) : null)).filter((mean) => mean !== null);
  const [low, high] = [Math.min(...densities), Math.max(...densities)];
  const rows = new Map();
  const body = el("tbody", {}, order.map((i, k) => {
    const mean = view ? view.meanSimilarity(i) : null;
    const basin = view ? view.basinNumber(i) : null;
    const before = k > 0 && view ? view.basinNumber(order[k - 1]) : basin;
    const meter = el("span", { class: "meter", "aria-hidden": "true" }, el("span", {}));
    meter.firstChild.style.width = `${high > low ? 6 + (94 * ((mean ?? low) - low)) / (high - low) : 100}%`; // the lowest is seen too
    const row = el("tr", { class: basin !== before ? "new-basin" : null, onclick: (event) => actions.select(...(event.shiftKey ? [null, i] : [i, null])) },
      el("td", {}, button(`${problem.number(i)}`, `Show ${NOUNS.rollout} ${problem.number(i)}`, () => {}), view && i === view.pick ? el("span", { class: "badge pick" }, "pick") : null),
      el("td", { class: "number" }, basin === null ? "–" : `${basin + 1}`),
      el("td", { class: "number" }, mean === null ? "not compared" : [meter, mean.toFixed(3)]),
      labelled ? el("td", {}, [el("span", { class: "cross" }, "✗ "), el("span", { class: "tick" }, "✓ "), ""][problem.correct(i)], problem.answer(i) === null ? "none" : theirs(problem.answer(i), 28)) : null,
      el("td", { class: "number" }, problem.length(i).toLocaleString("en")),
      likely ? el("td", { class: "number" }, problem.likelihood(i).toFixed(2)) : null);
    rows.set(i, row);
    return row;
  }));
  const heads = [NOUNS.rollout, "basin", "density", labelled ? "answer" : null, "tokens", likely ? "likelihood" : null];
  const table = el("table", { class: "rollouts" },
    el("thead", {}, el("tr", {}, heads.filter(Boolean).map((head, k) => el("th", { scope: "col", class: k > 0 && head !== "answer" ? "number" : null }, head)))), body);
  const box = scroller(capital(several(NOUNS.rollout)), table);
  const bars = high > low ? ` The bars of density go from the lowest, ${low.toFixed(3)}, to the highest, ${high.toFixed(3)}.` : "";
  const node = panel(capital(several(NOUNS.rollout)), `Click one to read it (A); with the shift key, to compare with it (B).${bars}`, box);
  const select = (a, b) => {
    for (const [i, row] of rows) {
      row.classList.toggle("chosen-a", i === a);
      row.classList.toggle("chosen-b", i === b && i !== a);
      row.querySelector("button").setAttribute("aria-pressed", i === a ? "true" : "false");
    }
    const row = rows.get(a);
    const [top, bottom] = [row.offsetTop - 40, row.offsetTop + row.offsetHeight];
    if (top < box.scrollTop || bottom > box.scrollTop + box.clientHeight) box.scrollTop = top - box.clientHeight / 3;
  };
  return { node, select, order };
}

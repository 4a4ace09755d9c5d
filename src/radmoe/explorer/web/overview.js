// What is in the file: the verdict, the pools, every problem with its outcome, and the evaluation's tables.

const MAIN_METHODS = ["rad", "rad+dc", "preset:best", "majority", "deepconf", "average", "oracle"];
const OUTCOMES = [
  ["all", "all"],
  ["right", "RAD right"],
  ["wrong", "RAD wrong"],
  ["missed", "RAD wrong, a right one was there"],
  ["beats", "RAD right, majority wrong"],
  ["loses", "RAD wrong, majority right"],
  ["abstains", "RAD abstains"],
];

// [number, basin size, verdict] of the pick under a readout; null where RAD abstains, undefined where it has no such view.
function pickOf(entry, readout) {
  return readout && entry.picks[readout] !== undefined ? entry.picks[readout] : Object.values(entry.picks)[0];
}

function overviewPage(index, state, actions) {
  const labelled = index.problems.some((entry) => entry.right !== null);
  const methods = MAIN_METHODS.flatMap((name) => index.methods.filter((method) => method.name === name && name !== "rad" && name !== "average"));
  const pools = index.pools.length;
  const agents = NOUNS.rollout === "trajectory";
  const rows = index.problems.map((entry, place) => ({ entry, place, pick: pickOf(entry, state.readout) }));
  const hit = (row, name) => row.entry.hits?.[name];
  const right = (row) => (row.pick ? row.pick[2] : row.pick === null && row.entry.right !== null ? 0 : 2);
  const columns = [
    { title: "#", number: true, value: (row) => row.place, cell: (row) => el("td", { class: "number" }, `${row.place + 1}`) },
    { title: NOUNS.problem, value: (row) => row.entry.id, cell: (row) => el("th", { scope: "row" }, el("a", { href: `#problem/${row.place + 1}` }, theirs(row.entry.id, 60))) },
    { title: "RAD picks", number: true, value: (row) => (row.pick ? row.pick[0] : null), cell: (row) => el("td", { class: "number" }, row.pick ? `${row.pick[0]}` : row.pick === null ? "abstains" : "–", verdictMark(right(row))) },
    { title: "its basin", number: true, value: (row) => (row.pick ? row.pick[1] / row.entry.rollouts : null), cell: (row) => el("td", { class: "number" }, row.pick ? `${row.pick[1]} of ${row.entry.rollouts}` : "–") },
    labelled ? { title: `right ${several(NOUNS.rollout)}`, number: true, value: (row) => (row.entry.right === null ? null : row.entry.right / row.entry.rollouts), cell: shareCell } : null,
    !labelled ? { title: several(NOUNS.rollout), number: true, value: (row) => row.entry.rollouts, cell: (row) => el("td", { class: "number" }, row.entry.rollouts.toLocaleString("en")) } : null,
    ...methods.map((method) => ({ title: visible(method.label.replace("@N", "")), value: (row) => hit(row, method.name), cell: (row) => el("td", { class: "outcome" }, verdictMark(hit(row, method.name) ?? 2) ?? "–") })),
    { title: "kind", value: (row) => row.entry.kind, cell: (row) => el("td", {}, row.entry.kind ?? "unknown") },
    pools > 1 ? { title: "pool", value: (row) => index.pools[row.entry.pool].name, cell: (row) => el("td", {}, theirs(index.pools[row.entry.pool].name, 40)) } : null,
  ].filter(Boolean);
  const table = sortableTable(capital(several(NOUNS.problem)), columns, rows, {
    class: "problems",
    row: (row) => el("tr", { "data-place": row.place, onclick: (event) => event.target.closest("a") || actions.open(row.place) }, columns.map((column) => column.cell(row))),
  });
  const search = el("input", { type: "search", id: "search", placeholder: `find ${NOUNS.problem}s  /`, "aria-label": `Find ${NOUNS.problem}s`, value: state.search, oninput: () => apply() });
  const outcome = choiceOf(labelled ? OUTCOMES : [OUTCOMES[0], OUTCOMES[6]], state.outcome, () => apply(), "Outcome");
  const pool = pools > 1 ? choiceOf([["", "all pools"], ...index.pools.map((one, k) => [String(k), visible(one.name)])], state.pool, () => apply(), "Pool") : null;
  const count = el("span", { class: "count", role: "status" });
  const apply = () => {
    actions.filter(search.value, outcome.value, pool ? pool.value : "");
    const wanted = search.value.trim().toLowerCase();
    const left = table.filter((row) => {
      const [rad, vote] = [right(row), hit(row, "majority")];
      const fits = {
        all: true, right: rad === 1, wrong: rad === 0, missed: rad === 0 && row.entry.right > 0,
        beats: rad === 1 && vote === 0, loses: rad === 0 && vote === 1, abstains: row.pick === null,
      }[outcome.value];
      const named = !wanted || `${row.place + 1} ${row.entry.id} ${row.entry.kind}`.toLowerCase().includes(wanted);
      return fits && named && (!pool || pool.value === "" || Number(pool.value) === row.entry.pool);
    });
    replaceChildren(count, left === rows.length ? plural(left, NOUNS.problem) : `${left} of ${plural(rows.length, NOUNS.problem)}`);
  };
  apply();
  const rollouts = index.problems.reduce((sum, entry) => sum + entry.rollouts, 0);
  const node = el("article", { class: "overview" },
    el("header", {},
      el("h1", {}, `${plural(index.problems.length, NOUNS.problem)}, ${plural(rollouts, NOUNS.rollout)}`),
      el("p", { class: "why" }, `${agents ? "An agent worked on every issue" : "A model answered every problem"} several times${pools > 1 ? `, in ${index.pools.length} settings` : ""}. RAD picked one ${agents ? "trajectory" : "answer"} for each by comparing which of the model's experts were at work, without parsing or comparing what the ${agents ? "patches" : "answers"} say.`),
      index.verdict ? el("p", { class: "verdict" }, theirs(index.verdict, 2000)) : null,
      ...index.notes.map((note) => el("p", { class: "note" }, theirs(note, 1000)))),
    legendNode(index),
    el("section", {}, el("h2", {}, capital(several(NOUNS.problem))), el("p", { class: "filter" }, search, outcome, pool, count), table.node),
    index.tables.length ? el("section", {}, el("h2", {}, "How well selection did"), index.tables.map((table, k) => evaluationTable(table, k === 0))) : null,
    index.pools.length ? el("section", {}, el("h2", {}, pools > 1 ? "Pools" : "The pool"), el("div", { class: "pools" }, index.pools.map(poolNode))) : null);
  const step = (by) => {
    const links = [...node.querySelectorAll("table.problems tbody a")];
    const at = links.indexOf(document.activeElement);
    links[Math.max(0, Math.min(links.length - 1, at < 0 ? 0 : at + by))]?.focus();
  };
  return { node, step, search };
}

function shareCell(row) {
  const { right, rollouts } = row.entry;
  if (right === null) return el("td", { class: "number" }, "no labels");
  const meter = el("span", { class: "meter right", "aria-hidden": "true" }, el("span", {}));
  meter.firstChild.style.width = `${(100 * right) / rollouts}%`;
  return el("td", { class: "number" }, meter, `${right} of ${rollouts}`);
}

function verdictMark(value) {
  if (value === 1) return el("span", { class: "tick", title: "right" }, " ✓", el("span", { class: "aside" }, " right"));
  if (value === 0) return el("span", { class: "cross", title: "wrong" }, " ✗", el("span", { class: "aside" }, " wrong"));
  return value === 2 ? null : ` ${percent(value)}`;
}

function poolNode(pool) {
  return el("div", { class: "pool" }, el("h3", {}, theirs(pool.name, 80)),
    el("dl", {}, pool.facts.map(([word, value]) => el("div", {}, el("dt", {}, word), el("dd", {}, theirs(value, 300))))));
}

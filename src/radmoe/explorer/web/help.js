// For someone who never heard of routing: what the words on the page mean, and its keys.

const WORDS = () => [
  NOUNS.rollout === "trajectory"
    ? ["Trajectory", "One complete run of an agent on an issue, step by step, which ends with a patch. The agent runs many times, and one patch has to be submitted."]
    : ["Rollout", "One complete attempt of a model at a problem. The model answers the same problem many times, and one attempt has to be returned."],
  ["Routing", "This kind of model has many small parts, its experts. For every word piece (token) and in every layer it uses only a few of them. Which ones it used is its routing."],
  ["Anchor, window", `The place where an answer opens, such as \\boxed{ or a code fence, is the anchor. The window is the few tokens from there, where the routing of all ${several(NOUNS.rollout)} is compared.`],
  ["Density, pick", "How much the routing of one agrees with that of its nearest neighbours. RAD picks the one with the highest density, and parses no answer to do so."],
  ["Basin", `${capital(several(NOUNS.rollout))} that lead to the same local best when one climbs from neighbour to neighbour. They are alike in their routing; they may give different answers, and all of them can be wrong.`],
];
const KEYS = () => [
  ["← →", `previous, next ${NOUNS.problem}`],
  ["↑ ↓", `previous, next ${NOUNS.rollout}; on the overview, ${NOUNS.problem}`],
  ["p", "the pick"],
  ["r", "next readout"],
  ["t", "next theme: system, light, dark"],
  ["/", `find ${NOUNS.problem}s`],
  ["?", "this help"],
  ["Esc", "close, or back to the overview"],
];

function legendNode(index) {
  return el("section", { class: "legend", "aria-label": "How to read this page" }, wordList(index));
}

// With an index whose problems are graded, what a basin is ends with how often two rollouts of a picked one answer alike.
function wordList(index) {
  const measured = (word) => (word === "Basin" && index ? answeredAlike(index) : "");
  return el("dl", {}, PAGES.words().map(([word, meaning]) => el("div", {}, el("dt", {}, word), el("dd", {}, meaning + measured(word)))));
}

function answeredAlike(index) {
  const readable = index.problems.filter((entry) => entry.pairs && ["math", "choice"].includes(entry.kind));
  const [same, all] = readable.reduce(([s, a], { pairs }) => [s + pairs[0], a + pairs[1]], [0, 0]);
  return all ? ` On this page ${Math.round(100 * same / all)}% of the pairs in picked basins give the same answer (math and choice).` : "";
}

function helpDialog() {
  const dialog = el("dialog", { class: "help", "aria-labelledby": "help-title" });
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  return dialog;
}

function fillHelp(dialog, keys = KEYS()) {
  replaceChildren(dialog,
    el("h2", { id: "help-title", tabindex: "-1", autofocus: true }, "How to read this page"), wordList(),
    el("h2", {}, "Keys"), el("dl", { class: "key-list" }, keys.map(([key, meaning]) => el("div", {}, el("dt", {}, el("kbd", {}, key)), el("dd", {}, meaning)))),
    button("Close", "Close this help", () => dialog.close()));
}

// What `mount` shows. A companion's script, which stands before app.js, puts pages and words of its own here.
const PAGES = { overview: overviewPage, problem: problemPage, words: WORDS };

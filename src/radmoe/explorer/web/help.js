// For someone who never heard of routing: what the words on the page mean, and its keys.

const WORDS = [
  ["Rollout", "One complete attempt of a model at a problem. The model answers the same problem many times, and one attempt has to be returned."],
  ["Routing", "This kind of model has many small parts, its experts. For every word piece (token) and in every layer it uses only a few of them. Which ones it used is its routing."],
  ["Anchor, window", "The place where an answer opens, such as \\boxed{ or a code fence, is the anchor. The window is the few tokens from there, where the routing of all rollouts is compared."],
  ["Density, pick", "How much the routing of a rollout agrees with that of its nearest neighbours. RAD picks the rollout with the highest density, and reads no answer to do so."],
  ["Basin", "Rollouts that lead to the same local best when one climbs from neighbour to neighbour. Mostly they mean the same answer, which can be wrong."],
];
const KEYS = [
  ["← →", "previous, next problem"],
  ["↑ ↓", "previous, next rollout; on the overview, problem"],
  ["p", "the pick"],
  ["r", "next readout"],
  ["t", "next theme: system, light, dark"],
  ["/", "find a problem"],
  ["?", "this help"],
  ["Esc", "close, or back to the overview"],
];

function legendNode() {
  return el("section", { class: "legend", "aria-label": "How to read this page" }, wordList());
}

function wordList() {
  return el("dl", {}, WORDS.map(([word, meaning]) => el("div", {}, el("dt", {}, word), el("dd", {}, meaning))));
}

function helpDialog() {
  const dialog = el("dialog", { class: "help", "aria-labelledby": "help-title" });
  dialog.append(
    el("h2", { id: "help-title" }, "How to read this page"), wordList(),
    el("h2", {}, "Keys"), el("dl", { class: "key-list" }, KEYS.map(([key, meaning]) => el("div", {}, el("dt", {}, el("kbd", {}, key)), el("dd", {}, meaning)))),
    button("Close", "Close this help", () => dialog.close()));
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  return dialog;
}

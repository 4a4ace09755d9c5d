// Two rollouts side by side, with the words that only one of them has.

function compareTab(problem, view, actions) {
  const left = textBox("A, with the words that B lacks marked");
  const right = textBox("B, with the words that A lacks marked");
  const headA = el("div", { class: "facts" });
  const headB = el("div", { class: "facts" });
  const about = el("p", { class: "about" });
  let held = false; // the other box follows, and must not lead back
  const follow = (leader, follower) => leader.addEventListener("scroll", () => {
    if (held) return void (held = false);
    held = true;
    follower.scrollTop = (leader.scrollTop / Math.max(1, leader.scrollHeight - leader.clientHeight)) * (follower.scrollHeight - follower.clientHeight);
  });
  follow(left, right);
  follow(right, left);
  const select = (a, b) => {
    replaceChildren(headA, el("span", { class: "letter a" }, "A"), rolloutFacts(problem, view, a));
    replaceChildren(headB, el("span", { class: "letter b" }, "B"), rolloutFacts(problem, view, b));
    const { pieces, aligned } = diffWords(wordsOf(plainText(problem, a)), wordsOf(plainText(problem, b)));
    fillDifference(left, pieces, "left");
    fillDifference(right, pieces, "right");
    const words = (kind) => pieces.filter((piece) => piece.kind === kind).reduce((sum, piece) => sum + piece.words.filter((word) => word.trim()).length, 0);
    const similar = view && view.similarity(a, b);
    replaceChildren(about,
      a === b ? `Choose another ${NOUNS.rollout} to compare with. ` : aligned
        ? `${plural(words("same"), "word")} in common, ${plural(words("left"), "word")} only in A, ${plural(words("right"), "word")} only in B. `
        : "These texts are too different to be aligned; what they share at their beginning and end is not marked. ",
      similar === null || a === b ? "" : `Similarity of their routing: ${similar.toFixed(2)}.`);
  };
  const node = el("div", {}, about, el("div", { class: "beside" }, el("div", {}, headA, left), el("div", {}, headB, right)));
  return { node, select };
}

// The kept text of a rollout; a stretch that was left out is a line of its own.
function plainText(problem, i) {
  let behind = 0;
  const parts = [];
  for (const stretch of problem.stretches(i)) {
    if (stretch.start > behind) parts.push(`\n[${plural(stretch.start - behind, "token")} left out]\n`);
    behind = stretch.stop;
    parts.push(stretch.texts.join(""));
  }
  return parts.join("");
}

function fillDifference(box, pieces, side) {
  const own = pieces.filter((piece) => piece.kind === "same" || piece.kind === side);
  replaceChildren(box, own.map((piece) => {
    const text = piece.words.join("");
    const [nodes] = visibleNodes(text, 0, text.length, escapesIn(text, true), 0);
    return piece.kind === "same" ? el("span", {}, ...nodes) : el(side === "left" ? "del" : "ins", {}, ...nodes);
  }));
}

// The text of a rollout, token by token: log-probability as a tint, windows underlined, anchors framed.

const CHUNK = 3000; // tokens that are put on the page at once; twice as many in every next frame
const PROBABILITIES = [0.9, 0.6, 0.3, 0.1, 0.01];

function logprobOf(byte) {
  return byte === 255 ? -Infinity : -((byte / 32) ** 2);
}

function tintOf(byte) {
  const probability = Math.exp(logprobOf(byte));
  const level = PROBABILITIES.findIndex((least) => probability >= least);
  return level < 0 ? PROBABILITIES.length : level;
}

// Fills a box with the tokens of a rollout; long texts arrive chunk by chunk, so that nothing waits for them.
function fillText(box, problem, view, i, tinted) {
  const spans = view ? view.spans(i) : [];
  const anchor = view ? view.anchor(i) : null;
  const marks = (t) => (spans.some(([start, stop]) => t >= start && t < stop) ? " window" : "") + (anchor && t >= anchor[0] && t < anchor[1] ? " anchor" : "");
  const near = spans.length ? [Math.min(...spans.map(([start]) => start), anchor ? anchor[0] : Infinity), Math.max(...spans.map(([, stop]) => stop), anchor ? anchor[1] : 0)] : [0, 0];
  const token = Symbol("filling");
  box.filling = token;
  replaceChildren(box);
  const work = pieces();
  function* pieces() {
    let behind = 0;
    for (const stretch of problem.stretches(i)) {
      if (stretch.start > behind) yield gapNode(stretch.start - behind);
      behind = stretch.stop;
      const text = stretch.texts.join("");
      const escapes = escapesIn(text, true);
      let [at, from] = [0, 0];
      for (let k = 0; k < stretch.texts.length; k++) {
        const stop = at + stretch.texts[k].length;
        let nodes;
        [nodes, from] = visibleNodes(text, at, stop, escapes, from);
        at = stop;
        const t = stretch.start + k;
        const tint = tinted && stretch.logprobs ? ` p${tintOf(stretch.logprobs[k])}` : "";
        const own = `t${tint}${t >= near[0] && t < near[1] ? marks(t) : ""}${stretch.controls[k] ? " control" : ""}`;
        const node = el("span", { class: own, "data-t": t }, ...nodes);
        node.logprob = stretch.logprobs ? stretch.logprobs[k] : null;
        yield node;
      }
    }
    if (problem.length(i) > behind) yield gapNode(problem.length(i) - behind);
  }
  let size = CHUNK;
  const step = () => {
    if (box.filling !== token) return;
    const chunk = document.createDocumentFragment();
    for (let count = 0; count < size; count++) {
      const { value, done } = work.next();
      if (done) {
        box.append(chunk);
        box.dispatchEvent(new Event("filled"));
        return;
      }
      chunk.append(value);
    }
    box.append(chunk);
    size *= 2; // a line is laid out anew with every chunk that is added to it
    requestAnimationFrame(step);
  };
  step();
}

function gapNode(count) {
  return el("span", { class: "gap" }, `${plural(count, "token")} left out of this page (radmoe report --full-text keeps them)`);
}

function tokenTip(event) {
  const node = event.target.closest?.(".t");
  if (!node) return tip.hide();
  const lines = [`token ${node.dataset.t}: ${visible(node.textContent)}`];
  if (node.logprob !== null) {
    const logprob = logprobOf(node.logprob);
    lines.push(logprob === -Infinity ? "probability near zero" : `log-probability ${logprob.toFixed(2).replace(/^-0\.00$/, "0.00")}, probability ${likely(Math.exp(logprob))}`);
  }
  if (node.classList.contains("anchor")) lines.push("part of the marker (anchor)");
  if (node.classList.contains("window")) lines.push("its routing was compared (window)");
  tip.show(event, lines);
}

// A log-probability is kept in steps, so that one is not told from nearly one.
function likely(share) {
  return share > 0.995 ? "over 99%" : share < 0.01 ? `${(100 * share).toFixed(2)}%` : `${Math.round(100 * share)}%`;
}

function textBox(label) {
  const box = scroller(label);
  box.classList.add("text");
  box.addEventListener("mousemove", tokenTip);
  box.addEventListener("mouseleave", () => tip.hide());
  return box;
}

function scrollToToken(box, t) {
  const node = box.querySelector(`[data-t="${t}"]`);
  if (node) box.scrollTop = node.offsetTop - box.offsetTop - box.clientHeight / 3;
}

function textTab(problem, view, actions) {
  const box = textBox(`Text of the selected ${NOUNS.rollout}`);
  const head = el("div", { class: "facts" });
  const toWindow = button("Go to the window", "Scroll to where routing was compared", () => jump());
  let current = null;
  const jump = () => {
    const spans = view && current !== null ? view.spans(current) : [];
    if (spans.length) scrollToToken(box, spans[0][0]);
  };
  const hasLogprobs = problem.arrays.logprobs !== undefined;
  const tinted = el("input", { type: "checkbox", checked: hasLogprobs, disabled: !hasLogprobs, onchange: () => show(current) });
  const show = (a) => {
    current = a;
    replaceChildren(head, rolloutFacts(problem, view, a));
    fillText(box, problem, view, a, tinted.checked);
    const located = view && view.spans(a).length > 0;
    toWindow.disabled = !located;
    jump();
  };
  const keys = el("div", { class: "keys text-keys" },
    el("label", { class: "inline" }, tinted, hasLogprobs ? " tint unlikely tokens" : " no log-probabilities were kept"),
    hasLogprobs ? el("span", { class: "tints", "aria-hidden": "true" }, ["likely", ...PROBABILITIES].map((_, level) => el("span", { class: `p${level}` }, "\u00a0")), " unlikely") : null,
    el("span", {}, el("span", { class: "t window" }, "window"), ": routing compared here"),
    el("span", {}, el("span", { class: "t window anchor" }, "anchor"), ": the marker"),
    toWindow);
  const node = el("div", {}, head, keys, box);
  return { node, select: show, goTo: (t) => scrollToToken(box, t) };
}

// One line of facts on a rollout.
function rolloutFacts(problem, view, i) {
  const mean = view ? view.meanSimilarity(i) : null;
  const likelihood = problem.likelihood(i);
  const finish = problem.finish ? problem.finish[i] : null;
  const facts = [
    el("strong", {}, `${capital(NOUNS.rollout)} ${problem.number(i)}`),
    view && i === view.pick ? el("span", { class: "badge pick" }, "RAD's pick") : null,
    verdictBadge(problem.correct(i)),
    problem.arrays.answer === undefined ? null : problem.answer(i) === null ? "no answer could be read" : el("span", {}, "answer ", theirs(problem.answer(i), 80)),
    plural(problem.length(i), "token"),
    mean === null ? "does not reach the marker, so it was not compared" : `density ${mean.toFixed(3)}`,
    likelihood === null ? null : `likelihood ${likelihood.toFixed(3)}`,
    finish ? el("span", {}, "ended by ", theirs(finish, 40)) : null,
  ];
  return el("p", { class: "line" }, facts.filter(Boolean).map((fact) => (fact.nodeType ? fact : el("span", {}, fact))));
}

function verdictBadge(correct) {
  if (correct === 2) return null;
  return el("span", { class: `badge ${correct ? "right" : "wrong"}` }, correct ? "✓ right" : "✗ wrong");
}

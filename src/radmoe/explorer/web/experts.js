// Which experts fired in the windows of two rollouts: layers by experts, and the difference.

function expertsTab(problem, view, actions) {
  const [layers, experts] = problem.shape;
  const node = el("div", { class: "experts" });
  let drawn = [];
  const select = (a, b) => {
    const [firedA, firedB] = [view.fired(a), view.fired(b)];
    drawn = [];
    if (!firedA || !firedB) {
      const missing = [a, b].filter((i) => !view.fired(i)).map((i) => problem.number(i));
      replaceChildren(node, el("p", { class: "about" }, `${capital(NOUNS.rollout)} ${missing.join(" and ")} does not reach the marker, so there is no window to show.`));
      return;
    }
    const rows = (i) => view.rows[view.placeOf.get(i)];
    const grid = (title, name, value) => {
      const canvas = el("canvas", { width: experts, height: layers, class: "cells", "aria-hidden": "true" });
      const stage = el("div", { class: "heat", role: "img", "aria-label": `${title}: ${layers} layers by ${experts} experts` }, canvas);
      stage.style.aspectRatio = `${experts} / ${Math.max(layers, experts / 8)}`;
      stage.addEventListener("mousemove", (event) => {
        const box = stage.getBoundingClientRect();
        const layer = Math.min(layers - 1, Math.floor(((event.clientY - box.top) / box.height) * layers));
        const expert = Math.min(experts - 1, Math.floor(((event.clientX - box.left) / box.width) * experts));
        const at = layer * experts + expert;
        tip.show(event, [
          `layer ${layer}, expert ${expert}`,
          `A (${NOUNS.rollout} ${problem.number(a)}): in ${firedA[at]} of ${rows(a)} tokens`,
          `B (${NOUNS.rollout} ${problem.number(b)}): in ${firedB[at]} of ${rows(b)} tokens`,
        ]);
      });
      stage.addEventListener("mouseleave", () => tip.hide());
      drawn.push({ canvas, value, name });
      return el("figure", {}, el("figcaption", {}, title), stage);
    };
    const shareA = (at) => firedA[at] / Math.max(1, rows(a));
    const shareB = (at) => firedB[at] / Math.max(1, rows(b));
    let shared = 0;
    let either = 0;
    for (let at = 0; at < firedA.length; at++) {
      shared += firedA[at] > 0 && firedB[at] > 0;
      either += firedA[at] > 0 || firedB[at] > 0;
    }
    replaceChildren(node,
      el("p", { class: "about" },
        `Each row is a layer and each column one of its ${experts} experts; the stronger the colour, the more tokens of the window used it. `
        + `${shared.toLocaleString("en")} of the ${either.toLocaleString("en")} experts that fired in either window fired in both.`),
      el("div", { class: "heats" },
        grid(`A: ${NOUNS.rollout} ${problem.number(a)}${a === view.pick ? ", the pick" : ""}`, "share", shareA),
        grid(`B: ${NOUNS.rollout} ${problem.number(b)}${b === view.pick ? ", the pick" : ""}`, "share", shareB),
        grid("Difference between A and B", "difference", (at) => shareA(at) - shareB(at))),
      el("p", { class: "scale" }, "no token", el("span", { class: "ramp" }), "every token", el("span", { class: "spacer" }), "B more", el("span", { class: "ramp both" }), "A more"));
    draw();
  };
  const draw = () => {
    const [zero, full, more, less] = ["ramp-low", "ramp-high", "accent", "second"].map(themeColour);
    for (const { canvas, value, name } of drawn) {
      const image = new ImageData(experts, layers);
      for (let at = 0; at < experts * layers; at++) {
        const v = value(at);
        const colour = name === "share" ? mixed(zero, full, Math.sqrt(v)) : mixed(zero, v > 0 ? more : less, Math.sqrt(Math.abs(v)));
        image.data.set([...colour, 255], 4 * at);
      }
      canvas.getContext("2d").putImageData(image, 0, 0);
    }
  };
  return { node, select, draw };
}

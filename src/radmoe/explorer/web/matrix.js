// Who agrees with whom: the similarity of every two rollouts, basin by basin, the pick's basin first.

const MOST_NUMBERED = 24; // rollouts whose similarities may be written into the cells
const NUMBERED_CELL = 18; // pixels that a cell needs for that

function matrixPanel(problem, view, actions) {
  const n = view.members.length;
  const canvas = el("canvas", { width: n, height: n, class: "cells", "aria-hidden": "true" });
  const lines = svg("g", { class: "basin-lines" });
  const marks = svg("g", {});
  const numbers = svg("g", { class: "numbers" });
  const overlay = svg("svg", { viewBox: `0 0 ${n} ${n}`, preserveAspectRatio: "none", "aria-hidden": "true" }, lines, numbers, marks);
  let [low, high] = [1, 0];
  for (const value of view.similar) {
    low = Math.min(low, value / 255);
    high = Math.max(high, value / 255);
  }
  for (let place = 1; place < n; place++) {
    if (view.root[place] === view.root[place - 1]) continue;
    lines.append(svg("line", { x1: 0, x2: n, y1: place, y2: place }), svg("line", { y1: 0, y2: n, x1: place, x2: place }));
  }
  const label = `Similarity of ${plural(n, NOUNS.rollout)}, from ${low.toFixed(2)} to ${high.toFixed(2)}, in ${plural(view.basinOf.size, "basin")}`;
  const stage = el("div", { class: "matrix", role: "img", "aria-label": label }, canvas, overlay);
  if (n <= MOST_NUMBERED) {
    for (let row = 0; row < n; row++) {
      for (let column = 0; column < n; column++) {
        const value = view.similarityOfPlaces(row, column);
        const text = row === column ? `${problem.number(view.members[row])}` : value.toFixed(2).replace(/^0/, "");
        const shade = row === column ? "own" : value - low > 0.55 * (high - low) ? "on-high" : "on-low";
        numbers.append(svg("text", { x: column + 0.5, y: row + 0.5, class: shade }, text));
      }
    }
    new ResizeObserver(() => numbers.toggleAttribute("hidden", stage.clientWidth < n * NUMBERED_CELL)).observe(stage);
  }
  const at = (event) => {
    const box = stage.getBoundingClientRect();
    const place = (offset, side) => Math.max(0, Math.min(n - 1, Math.floor((offset / side) * n)));
    return [place(event.clientY - box.top, box.height), place(event.clientX - box.left, box.width)];
  };
  stage.addEventListener("mousemove", (event) => {
    const [row, column] = at(event);
    const [i, j] = [view.members[row], view.members[column]];
    const together = view.root[row] === view.root[column] ? "same basin" : "different basins";
    tip.show(event, i === j ? [`${NOUNS.rollout} ${problem.number(i)}`] : [
      `${several(NOUNS.rollout)} ${problem.number(i)} and ${problem.number(j)}`,
      `similarity ${view.similarityOfPlaces(row, column).toFixed(2)}, ${together}`,
    ]);
  });
  stage.addEventListener("mouseleave", () => tip.hide());
  stage.addEventListener("click", (event) => {
    const [row, column] = at(event);
    actions.select(view.members[row], row === column ? null : view.members[column]);
  });
  const draw = () => {
    const [from, to, blank] = ["ramp-low", "ramp-high", "line"].map(themeColour);
    const packed = ([red, green, blue]) => (255 << 24) | (blue << 16) | (green << 8) | red;
    const palette = Int32Array.from({ length: 256 }, (_, value) =>
      packed(mixed(from, to, Math.max(0, Math.min(1, (value / 255 - low) / Math.max(high - low, 1e-6))))));
    const image = new ImageData(n, n);
    const cells = new Int32Array(image.data.buffer);
    let at = 0;
    for (let row = 0; row < n; row++) {
      cells[row * n + row] = packed(blank);
      for (let column = row + 1; column < n; column++) {
        cells[row * n + column] = cells[column * n + row] = palette[view.similar[at++]];
      }
    }
    canvas.getContext("2d").putImageData(image, 0, 0);
  };
  const select = (a, b) => {
    replaceChildren(marks);
    for (const [rollout, name] of [[b, "mark-b"], [a, "mark-a"]]) {
      const place = view.placeOf.get(rollout);
      if (place === undefined) continue;
      marks.append(
        svg("rect", { x: 0, y: place, width: n, height: 1, class: name }),
        svg("rect", { x: place, y: 0, width: 1, height: n, class: name }),
      );
    }
  };
  draw();
  const scale = el("p", { class: "scale" }, low.toFixed(2), el("span", { class: "ramp" }), high.toFixed(2));
  const node = panel(`Agreement of every two ${several(NOUNS.rollout)}`, `Rows and columns are ${several(NOUNS.rollout)}, basin by basin; the pick is first. Click a cell to compare its two.`, stage, scale);
  return { node, select, draw };
}

function panel(title, about, ...children) {
  return el("section", { class: "panel" }, el("h2", {}, title), about ? el("p", { class: "about" }, about) : null, ...children);
}

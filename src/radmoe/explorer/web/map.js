// The rollouts on a plane, near each other where their routing agrees.

const BASIN_COLOURS = 6;

function mapPanel(problem, view, actions, colouring) {
  const [width, height, edge] = [400, 400, 26];
  const n = view.members.length;
  const xs = Array.from({ length: n }, (_, place) => view.map[2 * place]);
  const ys = Array.from({ length: n }, (_, place) => view.map[2 * place + 1]);
  const [left, right, bottom, top] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
  const zoom = Math.min((width - 2 * edge) / Math.max(right - left, 1), (height - 2 * edge) / Math.max(top - bottom, 1));
  const x = (place) => width / 2 + (xs[place] - (left + right) / 2) * zoom;
  const y = (place) => height / 2 - (ys[place] - (top + bottom) / 2) * zoom;
  const radius = n > 300 ? 3.5 : n > 80 ? 5 : 7;
  const links = svg("g", { class: "links" });
  const points = svg("g", {});
  const rings = svg("g", {});
  const drawing = svg("svg", { viewBox: `0 0 ${width} ${height}`, class: "map", role: "img", "aria-label": `Map of ${plural(n, NOUNS.rollout)}` }, links, points, rings);
  const pickPlace = view.pick === null ? null : view.placeOf.get(view.pick);
  if (pickPlace !== null) {
    for (const other of view.neighbours(view.pick)) {
      const place = view.placeOf.get(other);
      links.append(svg("line", { x1: x(pickPlace), y1: y(pickPlace), x2: x(place), y2: y(place) }));
    }
  }
  for (let place = n - 1; place >= 0; place--) {
    const rollout = view.members[place];
    const point = pointShape(problem.correct(rollout), x(place), y(place), radius);
    point.setAttribute("class", `point ${pointClass(problem, view, rollout, colouring)}`);
    point.addEventListener("mousemove", (event) => tip.show(event, rolloutLines(problem, view, rollout)));
    point.addEventListener("mouseleave", () => tip.hide());
    point.addEventListener("click", (event) => actions.select(...(event.shiftKey ? [null, rollout] : [rollout, null])));
    points.append(point);
  }
  const select = (a, b) => {
    replaceChildren(rings);
    const pick = pickPlace === null ? [] : [[view.pick, "ring-pick", radius + 5, "pick"]];
    const reach = 1.25 * radius + 1; // of a diamond, with its edge
    const taken = xs.map((_, place) => [x(place) - reach, y(place) - reach, x(place) + reach, y(place) + reach]);
    for (const [rollout, name, r, word] of [...pick, [b, "ring-b", radius + 3, "B"], [a, "ring-a", radius + 3, "A"]]) {
      const place = view.placeOf.get(rollout);
      if (place === undefined) continue;
      rings.append(svg("circle", { cx: x(place), cy: y(place), r, class: name }));
      const [own, far] = freePlace(x(place), y(place), radius + 5, word, taken, width, height);
      taken.push(own);
      const [middle, base] = [(own[0] + own[2]) / 2, own[3] - 4];
      if (far) rings.append(svg("line", { x1: x(place), y1: y(place), x2: middle, y2: (own[1] + own[3]) / 2, class: `leader ${name}` }));
      rings.append(svg("text", { x: middle, y: base, class: `${name}-word` }, word));
    }
  };
  const labelled = problem.arrays.correct !== undefined;
  const verdicts = [["right", "right", 1], ["wrong", "wrong", 0]];
  const basins = Array.from({ length: Math.min(view.basinOf.size, BASIN_COLOURS) }, (_, basin) => [basinWord(basin, view), `basin-${basin}`, 2]);
  const shapes = labelled ? verdicts.map(([word, , correct]) => [word, "unknown", correct]) : [];
  const keys = colouring === "right" ? verdicts : [...basins, ...shapes];
  const legend = el("ul", { class: "keys" }, keys.map(([word, name, correct]) =>
    el("li", {}, svg("svg", { viewBox: "0 0 16 16", class: "key", "aria-hidden": "true" }, withClass(pointShape(correct, 8, 8, 5), `point ${name}`)), word)));
  const choice = labelled
    ? el("label", { class: "inline" }, "colour ", choiceOf([["right", "right or wrong"], ["basin", "basin"]], colouring, actions.colour))
    : null;
  const about = `${capital(several(NOUNS.rollout))} lie close where their routing agrees. Lines join the pick to its nearest neighbours.`;
  const node = panel(`Map of the ${several(NOUNS.rollout)}`, about, drawing, el("div", { class: "under" }, legend, choice));
  return { node, select };
}

// The box of a word beside a point, as near as it covers least of the boxes that are taken, and whether that is some way off.
function freePlace(x, y, r, word, taken, width, height) {
  const [wide, tall] = [4 + 8 * word.length, 16];
  let best = null;
  for (let step = 0; step < 5; step++) {
    for (let turn = 0; turn < 16; turn++) {
      const angle = ((word === "pick" ? 4 : -4) + turn) * (Math.PI / 8);
      const away = r + 2 + 16 * step;
      const [cx, cy] = [x + Math.cos(angle) * (away + wide / 2), y + Math.sin(angle) * (away + tall / 2)];
      const box = [cx - wide / 2, cy - tall / 2, cx + wide / 2, cy + tall / 2];
      const inside = box[0] >= 0 && box[1] >= 0 && box[2] <= width && box[3] <= height;
      const covered = taken.reduce((sum, other) => sum + overlap(box, other), inside ? 0 : wide * tall);
      if (best === null || covered < best.covered) best = { box, covered, far: step > 0 };
      if (covered === 0) return [box, step > 0];
    }
  }
  return [best.box, best.far];
}

function overlap(one, other) {
  const side = (low, high) => Math.max(0, Math.min(one[high], other[high]) - Math.max(one[low], other[low]));
  return side(0, 2) * side(1, 3);
}

function basinWord(basin, view) {
  if (basin === 0) return "the pick's basin";
  return basin === BASIN_COLOURS - 1 && view.basinOf.size > BASIN_COLOURS ? "other basins" : `basin ${basin + 1}`;
}

function pointClass(problem, view, rollout, colouring) {
  if (colouring === "right") return ["wrong", "right", "unknown"][problem.correct(rollout)];
  return `basin-${Math.min(view.basinNumber(rollout), BASIN_COLOURS - 1)}`;
}

// Right is a disc, wrong a diamond, and a rollout without a label a disc too: shape says what colour says.
function pointShape(correct, x, y, r) {
  if (correct !== 0) return svg("circle", { cx: x, cy: y, r });
  const d = 1.25 * r;
  return svg("path", { d: `M${x} ${y - d}L${x + d} ${y}L${x} ${y + d}L${x - d} ${y}Z` });
}

function withClass(node, name) {
  node.setAttribute("class", name);
  return node;
}

function choiceOf(options, value, onchange, label) {
  const node = el("select", { "aria-label": label, onchange: () => onchange(node.value) },
    options.map(([key, word]) => el("option", { value: key, selected: key === value }, word)));
  return node;
}

// What is known of a rollout, in a few lines.
function rolloutLines(problem, view, i) {
  const mean = view.meanSimilarity(i);
  const likelihood = problem.likelihood(i);
  const basin = view.basinNumber(i);
  return [
    `${NOUNS.rollout} ${problem.number(i)}${i === view.pick ? ", RAD's pick" : ""}`,
    plural(problem.length(i), "token"),
    mean === null ? "not compared" : `density ${mean.toFixed(3)} (mean over ${plural(view.k, "neighbour")})`,
    basin === null ? null : `basin ${basin + 1} of ${view.basinOf.size}`,
    likelihood === null ? null : `likelihood ${likelihood.toFixed(3)} (mean log-probability)`,
    problem.arrays.answer === undefined ? null : problem.answer(i) === null ? "no answer" : ["answer ", theirs(problem.answer(i), 60)],
    [`labelled wrong`, `labelled right`, null][problem.correct(i)],
  ].filter(Boolean).map((line) => (Array.isArray(line) ? el("span", {}, ...line) : line));
}

// The page as a whole: the bar on top, links, keys and themes. `mount` puts it into any element, with any source, and gives
// a function that reads the index again, for a source that grows.

const THEMES = ["system", "light", "dark"];

// The button that changes the theme, which `redraw` follows.
function themeSwitch(redraw) {
  let theme = remembered("theme", "system");
  const next = () => {
    theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
    remember("theme", theme);
    apply();
  };
  const node = button("", "Change the theme (t)", next, { class: "theme" });
  function apply() {
    if (theme === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    replaceChildren(node, { system: "◐", light: "○", dark: "●" }[theme], el("span", { class: "word" }, ` ${theme}`));
    node.setAttribute("aria-label", `Theme: ${theme}`);
    redraw();
  }
  apply();
  return { node, next };
}

// With `back`, the address of a list, the page is of one problem, and leads there.
function mount(host, source, back) {
  const state = { readout: null, tab: "text", colouring: "right", search: "", outcome: "all", pool: "", single: Boolean(back) };
  const blocks = keeping(source);
  let index = null;
  let shown = null; // the page on show: {kind, node, ...}
  let round = 0;
  let finding = false; // whether the search shall have the focus once the overview is there
  const main = el("main", { id: "content", tabindex: "-1" }, el("p", { class: "about" }, "Reading…"));
  const readouts = el("span", { class: "switch" });
  const steps = el("span", { class: "steps" });
  const theme = themeSwitch(redraw);
  const help = helpDialog();
  const name = el("span", {}, " report");
  const bar = el("header", { class: "bar" },
    el("a", { class: "skip", href: "#content", onclick: (event) => { event.preventDefault(); main.focus(); } }, "Skip to the content"),
    back ? el("a", { class: "home back", href: back }, "‹ All requests") : el("a", { class: "home", href: "#" }, "radmoe", name),
    steps, el("span", { class: "spacer" }), readouts, theme.node,
    button("?", "How to read this page, and its keys (?)", () => help.showModal(), { "aria-label": "Help" }));
  replaceChildren(host, bar, main, help);

  function redraw() {
    themeColours.clear();
    shown?.redraw?.();
  }

  // Links: #problem/3, #problem/3/rollout/7, #problem/3/rollout/7/with/2, each with ?readout=NAME behind.
  function parsed(hash) {
    const [path, query] = hash.replace(/^#/, "").split("?");
    const parts = path.split("/");
    const readout = new URLSearchParams((query ?? "").replaceAll("+", "%2B")).get("readout");
    if (parts[0] !== "problem") return { place: back ? 0 : null, rollout: null, other: null, readout };
    const named = (word) => (parts.includes(word) ? Number(parts[parts.indexOf(word) + 1]) : null);
    return { place: Number(parts[1]) - 1, rollout: named("rollout"), other: named("with"), readout };
  }
  function linkTo(place, rollout, other) {
    const path = place === null ? "" : `problem/${place + 1}` + (rollout === null ? "" : `/rollout/${rollout}`) + (other === null ? "" : `/with/${other}`);
    return `#${path}${state.readout ? `?readout=${encodeURIComponent(state.readout)}` : ""}`;
  }
  const go = (place) => { location.hash = linkTo(place, null, null); };

  const actions = {
    open: go,
    colour(value) { state.colouring = value; show(); },
    tab(value) { state.tab = value; },
    filter(search, outcome, pool) { Object.assign(state, { search, outcome, pool }); },
    selected(a, b) {
      const { problem } = shown;
      history.replaceState(null, "", linkTo(problem.place, problem.number(a), b === a ? null : problem.number(b)));
      Object.assign(shown, { a, b });
    },
  };

  async function show() {
    const own = ++round;
    const link = parsed(location.hash);
    tip.hide();
    if (link.readout) state.readout = link.readout;
    if (link.place === null) return showOverview();
    if (!(link.place >= 0 && link.place < index.problems.length)) return showOverview(`There is no such ${NOUNS.problem}: this page has ${plural(index.problems.length, NOUNS.problem)}.`);
    const problem = await blocks.problem(link.place);
    if (own !== round) return;
    const rollout = link.rollout === null ? null : problem.indexOf(link.rollout);
    const other = link.other === null ? null : problem.indexOf(link.other);
    const wanted = { ...state, rollout: rollout === -1 ? null : rollout, other: other === -1 ? null : other };
    const page = PAGES.problem(problem, index, wanted, actions);
    const missing = rollout === -1 ? el("p", { class: "note" }, `There is no ${NOUNS.rollout} ${link.rollout} of this ${NOUNS.problem}: it has ${plural(problem.rollouts, NOUNS.rollout)}.`) : null;
    replaceChildren(main, missing, page.node);
    const change = shown?.problem !== problem;
    shown = { ...page, problem };
    page.show();
    document.title = `${visible(problem.id)} · ${visible(index.title)}`;
    showBar(link.place, problem);
    if (change) scrollTo(0, 0);
    idle(() => own === round && link.place + 1 < index.problems.length && blocks.problem(link.place + 1).catch(() => {}));
  }

  function showOverview(note) {
    const page = PAGES.overview(index, state, actions);
    const change = shown?.problem !== undefined;
    replaceChildren(main, note ? el("p", { class: "note", role: "alert" }, note) : null, page.node);
    shown = page;
    document.title = visible(index.title);
    showBar(null, null);
    if (change) scrollTo(0, 0);
    if (finding) page.search.focus();
    finding = false;
  }

  function showBar(place, problem) {
    const names = problem ? problem.views.map((view) => view.readout) : [...new Set(index.problems.flatMap((entry) => Object.keys(entry.picks)))];
    const current = names.includes(state.readout) ? state.readout : problem ? names[0] : "";
    const options = [...(problem ? [] : [["", "each kind's own"]]), ...names.map((name) => [name, visible(name)])];
    replaceChildren(readouts, names.length > (problem ? 1 : 0) ? el("label", { class: "inline" }, el("span", { class: "word" }, "readout "), choiceOf(options, current, switchReadout)) : null);
    replaceChildren(steps, place === null || back ? null : [
      button("‹", `Previous ${NOUNS.problem} (←)`, () => stepProblem(-1), { disabled: place === 0, "aria-label": `Previous ${NOUNS.problem}` }),
      el("span", { class: "where" }, `${place + 1} / ${index.problems.length}`),
      button("›", `Next ${NOUNS.problem} (→)`, () => stepProblem(1), { disabled: place === index.problems.length - 1, "aria-label": `Next ${NOUNS.problem}` })]);
  }
  function switchReadout(name) {
    state.readout = name || null;
    const problem = shown.problem;
    history.replaceState(null, "", problem ? linkTo(problem.place, null, null) : linkTo(null, null, null));
    show();
  }
  function nextReadout() {
    const node = readouts.querySelector("select");
    if (!node) return;
    node.selectedIndex = (node.selectedIndex + 1) % node.options.length;
    switchReadout(node.value);
  }
  function stepProblem(by) {
    if (!shown?.problem) return;
    const next = shown.problem.place + by;
    if (next >= 0 && next < index.problems.length) go(next);
  }

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || help.open || !index) return;
    const typing = event.target.closest?.("input, select, textarea");
    if (event.key === "Escape") {
      if (typing) typing.blur();
      else if (back) bar.querySelector(".back").click();
      else if (shown?.problem) go(null);
      return;
    }
    if (typing) return;
    const reading = event.target.closest?.(".text");
    const commands = {
      ArrowLeft: () => stepProblem(-1),
      ArrowRight: () => stepProblem(1),
      ArrowUp: reading ? null : () => shown?.step(-1),
      ArrowDown: reading ? null : () => shown?.step(1),
      p: () => shown?.toPick?.(),
      r: nextReadout,
      t: theme.next,
      "?": () => help.showModal(),
      "/": back ? null : () => {
        finding = shown?.problem !== undefined;
        if (finding) go(null);
        else shown?.search.focus();
      },
    };
    const command = commands[event.key];
    if (!command) return;
    event.preventDefault();
    command();
  });
  addEventListener("hashchange", () => show().catch(failed));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);

  function failed(error) {
    replaceChildren(main, el("p", { class: "note", role: "alert" }, `This page cannot be shown: ${visible(error.message)}`));
  }
  async function refresh() {
    const { header } = await source.index();
    const more = header.problems.length !== index?.problems.length;
    index = header;
    name.textContent = visible(index.title).replace(/^radmoe/, "");
    nameAfter(index);
    if (back) NOUNS.problem = "request";
    fillHelp(help);
    if (!more || document.activeElement?.closest?.("input, select")) return; // somebody is typing: the next time will do
    if (shown?.problem) showBar(shown.problem.place, shown.problem);
    else await show();
  }
  refresh().then(() => { document.documentElement.dataset.ready = "yes"; }).catch(failed);
  return refresh;
}

// When the browser has nothing else to do.
function idle(work) {
  if (globalThis.requestIdleCallback) requestIdleCallback(work);
  else setTimeout(work, 200);
}

function remembered(key, otherwise) {
  try {
    const value = localStorage.getItem(`radmoe-${key}`);
    return THEMES.includes(value) ? value : otherwise;
  } catch {
    return otherwise;
  }
}

function remember(key, value) {
  try {
    localStorage.setItem(`radmoe-${key}`, value);
  } catch {
    // a browser that keeps nothing for files
  }
}

globalThis.radmoe = { mount, fileSource, fetchSource, visible, decodeTokens, diffWords, wordsOf, percent };
const meta = (name) => document.querySelector(`meta[name="radmoe-${name}"]`)?.content;
if (meta("index")) {
  const refresh = mount(document.getElementById("app"), fetchSource(meta("index"), meta("problem")), meta("back"));
  if (meta("refresh")) setInterval(() => refresh().catch(() => {}), 1000 * Number(meta("refresh"))); // a server may be away
} else if (document.getElementById("index")) mount(document.getElementById("app"), fileSource());
else PAGES.start?.(document.getElementById("app"));

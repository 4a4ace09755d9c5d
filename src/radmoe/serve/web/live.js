// The gateway's page at /: what it does at the moment, and its last requests, each of which opens as the explorer shows it.

const PERIOD = 1000; // milliseconds between two looks at the gateway
const MOST = 100; // rows that are shown at first, and that a click adds
const CHOICES = ["method", "kind", "model"];
const ALL = { find: "", method: "", kind: "", model: "", most: MOST }; // no filters
const LIVE_WORDS = [
  ["Method", "How the answer was chosen among the rollouts. rad: by their routing. likelihood: routing could not decide, and the likeliest one was asked for instead. first: nothing was chosen, and the line below the answer says why."],
  ["Margin", "By how much the pick's score is above the best outside its basin; – where all are in it. The score is a mean similarity, and a sum of ranks where a preset such as best weighs likelihood too. With ≈ it is within the numeric noise, so that a second pass may pick another."],
  ["Sure", "How probable it is that the pick is right, by the gateway's calibration; – where there is none for these rollouts."],
  ["Latency", "From a request's arrival to its answer. Half of the requests are faster than p50, and 99 of 100 faster than p99."],
];

PAGES.words = () => [...LIVE_WORDS, ...WORDS()];
PAGES.start = (host) => {
  const entries = []; // the selections, the latest first
  const held = []; // those that came during a pause
  const view = { ...ALL, ...JSON.parse(TAB.getItem("radmoe-view")) }; // which of them are shown
  let state = null; // what the gateway said last, without the selections
  let lost = null; // since when it says nothing, and why
  let paused = false;

  const theme = themeSwitch(() => {});
  const help = helpDialog();
  fillHelp(help, [["/", "find requests"], ["t", "next theme: system, light, dark"], ["?", "this help"]]);
  const pulse = el("span", { class: "pulse", role: "status" });
  const pause = button("Pause", "Let the list stand still", () => { paused = !paused; renew(); draw(); }, { "aria-pressed": "false" });
  const [trouble, head, tiles, list] = ["div", "div", "div", "section"].map((tag) => el(tag, {}));
  tiles.className = "tiles";
  head.append(el("h1", {}, "radmoe serve"));
  replaceChildren(host,
    el("header", { class: "bar" }, el("a", { class: "home", href: "/" }, "radmoe", el("span", {}, " serve")), pulse, el("span", { class: "spacer" }), theme.node,
      button("?", "How to read this page, and its keys (?)", () => help.showModal(), { "aria-label": "Help" })),
    el("main", { id: "content" }, el("article", { class: "overview live" }, trouble, head, tiles, list)), help);

  const search = el("input", { type: "search", placeholder: "find requests  /", "aria-label": "Find in questions, answers, models and ids", value: view.find, oninput: () => choose({ find: search.value }) });
  const choices = el("span", { class: "choices" });
  const count = el("span", { class: "count" });
  const none = el("p", { class: "about", hidden: true }, "No request is like this. ", button("Show all", "Clear the filters", () => { search.value = ""; choose(ALL); renew(); }));
  const more = button("", "Show more requests", () => choose({ most: view.most + MOST }));
  const options = { class: "problems requests", row: rowOf, most: view.most };
  const table = sortableTable("Last requests", COLUMNS, entries, options);
  const full = [el("h2", {}, "Last requests"), el("div", { class: "filter" }, search, choices, pause, count), none, table.node, more];

  function choose(change) {
    TAB.setItem("radmoe-view", JSON.stringify(Object.assign(view, change)));
    show();
  }
  function show() {
    const wanted = view.find.trim().toLowerCase();
    options.most = view.most;
    const left = table.filter((entry) => (!wanted || entry.words.includes(wanted)) && CHOICES.every((name) => !view[name] || String(entry[name]) === view[name]));
    replaceChildren(count, left === entries.length ? plural(left, "request") : `${left.toLocaleString("en")} of ${plural(entries.length, "request")}`);
    none.hidden = left > 0;
    more.hidden = left <= view.most;
    replaceChildren(more, `Show ${Math.min(left - view.most, MOST)} more of ${left.toLocaleString("en")}`);
    table.node.hidden = left === 0;
  }
  // What came since the last time, and the filters, which depend on what there is.
  function renew() {
    if (!paused) entries.unshift(...held.splice(0));
    entries.splice(state.kept);
    replaceChildren(pause, paused ? `Go on${held.length ? ` (${held.length} new)` : ""}` : "Pause");
    pause.setAttribute("aria-pressed", paused);
    const nodes = CHOICES.map((name) => {
      const values = [...new Set([...entries.map((entry) => String(entry[name])), view[name]])].filter(Boolean).sort();
      const options = [["", `every ${name}`], ...values.map((value) => [value, visible(value === "null" ? `no ${name}` : value)])];
      return values.length > 1 || view[name] ? choiceOf(options, view[name], (value) => choose({ [name]: value }), capital(name)) : null;
    });
    if (!choices.contains(document.activeElement)) replaceChildren(choices, nodes);
    table.node.classList.toggle("unsure", entries.every((entry) => entry.probability === null));
    show();
  }

  function draw() {
    const names = state.models.map((name) => visible(name)).join(", ");
    document.title = `${names || "no model"} · radmoe`;
    const ask = `${state.models[0]}#rad-${state.rollouts}`;
    replaceChildren(head, el("p", { class: "kicker" }, "Best of N by routing · since ", timeNode(state.started)),
      el("h1", {}, state.models.length ? theirs(names, 200) : "No model server is up"),
      el("p", { class: "why" }, state.models.length
        ? [el("code", {}, theirs(ask, 120)), ` answers with the one of ${state.rollouts} rollouts whose routing is most agreed with.`]
        : "Requests are refused until one is back. The gateway asks every few seconds, and its log says what is wrong."));
    replaceChildren(tiles, loadTile(state), latencyTile(entries), picksTile(entries), serversTile(state.backend));
    if (entries.length || held.length) {
      if (list.firstChild !== full[0]) replaceChildren(list, full);
    } else replaceChildren(list, state.kept ? state.models.length > 0 && emptyNode(ask) : el("p", { class: "note" }, "This gateway was started with --recent 0: it keeps no requests, so none are listed."));
  }

  function take({ selections, ...news }) {
    for (const entry of selections) entry.words = `${entry.question}\n${entry.answer}\n${entry.model}\n${entry.id}`.toLowerCase();
    held.unshift(...selections);
    held.splice(news.kept);
    const changed = JSON.stringify(news) !== JSON.stringify(state);
    const first = state === null;
    state = news;
    if (selections.length || first) renew();
    if (changed) draw();
  }
  async function look() {
    const before = lost;
    const news = await askServer(`/live?after=${state?.count ?? 0}`).then((answer) => answer.json()).catch((error) => {
      lost ??= [new Date().toISOString(), error instanceof TypeError ? "The gateway does not answer." : visible(error.message)];
    });
    if (news && state && news.started !== state.started) { // another gateway, whose numbers begin anew
      [state, entries.length, held.length] = [null, 0, 0];
      return look();
    }
    if (news) {
      lost = null;
      take(news);
    }
    replaceChildren(pulse, lost ? "no answer" : paused ? "paused" : "live");
    pulse.className = `pulse ${lost ? "lost" : paused ? "paused" : ""}`;
    host.classList.toggle("stale", lost !== null);
    if (lost !== before) replaceChildren(trouble, lost && el("p", { class: "note", role: "alert" }, `${lost[1]} What is shown is from before `, timeNode(lost[0]), "; the page keeps asking."));
    document.documentElement.dataset.ready = "yes";
    setTimeout(look, lost ? 3 * PERIOD : PERIOD);
  }

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
    if (event.target.closest?.("input, select")) return event.key === "Escape" && event.target.blur();
    const command = { t: theme.next, "?": () => help.showModal(), "/": () => search.focus() }[event.key];
    if (!command) return;
    event.preventDefault();
    command();
  });
  look();
};

const COLUMNS = [
  { title: "time", value: (entry) => entry.number, cell: (entry) => el("td", {}, timeNode(entry.time)) },
  { title: "question and answer", value: (entry) => entry.question, cell: textCell },
  { title: "method", value: (entry) => entry.method, cell: (entry) => el("td", {}, el("span", { class: `badge${entry.method === "rad" ? " rad" : ""}` }, theirs(entry.method)), under(entry.kind ?? "no kind")) },
  { title: "margin", number: true, value: (entry) => entry.margin, cell: (entry) => numberCell("margin", entry.margin, (margin) => `${entry.within_noise ? "≈ " : ""}${entry.fusion === "ranksum" ? `${margin.toFixed(1)} ranks` : margin.toFixed(4)}`) },
  { title: "basin", number: true, value: (entry) => entry.basin && entry.basin / entry.compared, cell: (entry) => numberCell("basin", entry.basin, (basin) => `${basin} of ${entry.compared}`) },
  { title: "sure", number: true, value: (entry) => entry.probability, cell: (entry) => numberCell("sure", entry.probability, percent) },
  { title: "seconds", number: true, value: (entry) => entry.seconds.total, cell: (entry) => el("td", { class: "number" }, duration(entry.seconds.total), under(plural(entry.sampled.tokens, "token"))) },
];
const duration = (seconds) => (seconds < 0.9995 ? `${Math.round(1000 * seconds)} ms` : `${seconds.toFixed(seconds < 10 ? 2 : 1)} s`);
const under = (text) => el("div", { class: "under-value" }, theirs(text));
const numberCell = (label, value, shown) => el("td", { class: "number", "data-label": label }, value === null ? "–" : shown(value));

// A line of somebody else's text, which is cut before its end: there the answer is. Where the text breaks is of no interest
// here; every other control character is seen.
const TAIL = 36;
function lineNode(text) {
  const letters = Array.from(text.replace(/[ \t\n]+/g, " ").replace(/^ | $/g, "") || "(no text)");
  const long = letters.length > 2 * TAIL;
  return [el("span", { class: "begin" }, theirs(long ? letters.slice(0, -TAIL).join("") : letters.join(""), 500)), long ? el("span", { class: "end" }, theirs(letters.slice(-TAIL).join(""))) : null];
}

function textCell(entry) {
  const asked = lineNode(entry.question);
  return el("th", { scope: "row" },
    el("div", {}, entry.routing ? el("a", { class: "text-line", href: `/selections/${encodeURIComponent(entry.id)}`, onclick: () => TAB.setItem("radmoe-opened", entry.id) }, asked) : el("span", { class: "text-line" }, asked)),
    el("div", { class: "text-line answer" }, lineNode(entry.answer)),
    entry.reason ? el("div", { class: "reason" }, theirs(entry.reason, 300)) : null);
}

function rowOf(entry) {
  const row = el("tr", { class: entry.routing ? null : "closed", onclick: (event) => event.target.closest("a") || getSelection().toString() || row.querySelector("a")?.click() }, COLUMNS.map((column) => column.cell(entry)));
  if (TAB.getItem("radmoe-opened") === entry.id) { // the visitor comes back from it
    TAB.removeItem("radmoe-opened");
    requestAnimationFrame(() => row.querySelector("a")?.focus());
  }
  return row;
}

function timeNode(text) {
  const when = new Date(text);
  const clock = when.toLocaleTimeString("en-GB");
  return el("time", { datetime: text, title: text }, when.toDateString() === new Date().toDateString() ? clock : `${when.toLocaleDateString("en-GB", { day: "numeric", month: "short" })} ${clock}`);
}

function tile(title, value, ...rest) {
  return el("section", { class: "panel tile" }, el("h2", {}, title), el("p", { class: "big" }, value), ...rest);
}

function meterNode(share) {
  const node = el("span", { class: "meter", "aria-hidden": "true" }, el("span", {}));
  node.firstChild.style.width = `${100 * Math.min(1, share)}%`;
  return node;
}

function loadTile({ running, waiting, answered }) {
  const total = (fits) => Object.entries(answered).reduce((sum, [status, number]) => sum + (fits(Number(status)) ? number : 0), 0);
  const ended = [[total((status) => status < 400), "answered"], [total((status) => status >= 400 && status < 500), "refused"], [total((status) => status >= 500), "failed"]];
  return tile("Load", [`${running[0]}`, el("small", {}, ` of ${running[1]} under way`)], meterNode(running[0] / running[1]),
    el("p", {}, `${waiting[0]} of ${waiting[1]} wait in the queue`),
    el("p", { class: "about" }, ended.filter(([number], k) => number || !k).map(([number, word]) => `${number.toLocaleString("en")} ${word}`).join(" · ")));
}

function latencyTile(entries) {
  if (!entries.length) return tile("Latency", "–", el("p", { class: "about" }, "p50 and p99 of the requests below"));
  const at = (share, value) => entries.map((entry) => value(entry.seconds)).sort((a, b) => a - b)[Math.ceil(share * entries.length) - 1];
  const [p50, p99] = [0.5, 0.99].map((share) => at(share, ({ total }) => total));
  const median = (value) => duration(at(0.5, value));
  const last = entries.slice(0, 60).map((entry) => entry.seconds.total).reverse();
  const most = Math.max(...last);
  const bars = last.map((seconds, i) => svg("rect", { x: i + 60 - last.length + 0.1, width: 0.8, y: 20 - (20 * seconds) / most, height: (20 * seconds) / most }));
  return tile("Latency", [[p50, " p50"], [p99, " p99"]].map(([seconds, word]) => el("span", { class: "pair" }, duration(seconds), el("small", {}, word))),
    svg("svg", { class: "spark", viewBox: "0 0 60 20", preserveAspectRatio: "none", "aria-hidden": "true" }, ...bars),
    el("p", { class: "about" }, `medians: queue ${median(({ queue }) => queue)}, sampling ${median(({ upstream }) => upstream)}, own work ${median(({ total, queue, upstream }) => total - queue - upstream)}`));
}

function picksTile(entries) {
  const by = (method) => entries.filter((entry) => entry.method === method).length;
  const others = [[by("likelihood"), "by likelihood"], [by("first"), "took the first rollout, as nothing could be chosen"]].filter(([number]) => number);
  return tile("Picks by routing", entries.length ? [percent(by("rad") / entries.length), el("small", {}, ` of the last ${entries.length.toLocaleString("en")}`)] : "–",
    meterNode(entries.length ? by("rad") / entries.length : 0),
    el("p", { class: "about" }, others.map(([number, words]) => `${number.toLocaleString("en")} ${words}`).join(" · ")));
}

function serversTile({ upstreams, rollouts }) {
  if (!upstreams) return tile("Model", [`${rollouts}`, el("small", {}, " rollouts under way")], el("p", { class: "about" }, "in the gateway's own process"));
  const up = upstreams.filter((server) => server.up).length;
  const word = (server) => (!server.up ? "down" : server.routing ? "up" : "up, gives no routing");
  return tile(upstreams.length === 1 ? "Server" : "Servers", [`${up} of ${upstreams.length}`, el("small", {}, " up")],
    el("ul", { class: "servers" }, upstreams.map((server, i) => el("li", { class: server.up && server.routing ? "well" : "ill" }, el("b", {}, `upstream-${i}`), ` ${word(server)}`, server.load ? ` · ${server.load} under way` : ""))));
}

// How to ask, with this gateway's own address and model. A JSON text may hold \u0027 for a quote, which would end the shell's.
function emptyNode(model) {
  const body = { model, messages: [{ role: "user", content: "What is 17 * 23? Answer in \\boxed{}." }] };
  const key = TAB.getItem("radmoe-key") ? ' -H "Authorization: Bearer $KEY"' : "";
  return el("div", { class: "panel empty" }, el("h2", {}, "No request yet"),
    el("p", { class: "about" }, "The first one appears here by itself. Ask with any client of OpenAI's API, or so:"),
    el("pre", { class: "text", tabindex: "0", role: "region", "aria-label": "How to ask" }, visible(`curl ${location.origin}/v1/chat/completions${key} --json '${JSON.stringify(body).replaceAll("'", "\\u0027")}'`)));
}

"use strict";
// Every text here was written by a model or a client: it goes into text nodes, never into markup.

const byId = (id) => document.getElementById(id);
let seen = 0;
let timer = null;

function element(name, text, className) {
  const made = document.createElement(name);
  if (text !== undefined && text !== null) made.textContent = String(text);
  if (className) made.className = className;
  return made;
}

const figure = (value, digits) => (typeof value === "number" ? value.toFixed(digits) : "–");
const share = ({basin, density, index}) =>
  index === null ? "–" : `${Math.round((100 * basin.length) / density.filter((value) => value !== null).length)}%`;

async function ask(path) {
  const answer = await fetch(path, { cache: "no-store" });
  if (answer.status === 401) {
    byId("unlock").hidden = false;
    throw new Error("This gateway needs an API key.");
  }
  const body = await answer.json();
  if (!answer.ok) throw new Error(body.error ? body.error.message : `The gateway answered ${answer.status}.`);
  return body;
}

function row(entry) {
  const line = element("tr");
  line.append(element("td", entry.time.slice(11, 19)));
  const cell = element("td");
  const link = element(entry.routing ? "a" : "span", entry.answer.trim() || "(no text)");
  if (entry.routing) link.href = `/selections/${encodeURIComponent(entry.id)}#problem/1`;
  cell.append(link);
  line.append(cell, element("td", entry.radmoe.method), element("td", entry.radmoe.kind || "–"));
  line.append(element("td", entry.radmoe.sampled.rollouts, "number"), element("td", share(entry.radmoe), "number"));
  line.append(element("td", figure(entry.radmoe.margin, 4), "number"));
  line.append(element("td", typeof entry.radmoe.probability === "number" ? `${Math.round(100 * entry.radmoe.probability)}%` : "–", "number"));
  return line;
}

async function refresh() {
  clearTimeout(timer);
  try {
    const fresh = await ask(`/live?after=${seen}`);
    byId("unlock").hidden = true;
    if (fresh.count < seen) {
      byId("list").replaceChildren();
      seen = 0;
    } else if (fresh.selections.length) {
      byId("list").prepend(...fresh.selections.map(row));
      while (byId("list").children.length > 200) byId("list").lastChild.remove();
      seen = fresh.selections[0].number;
    }
    byId("status").textContent = `${fresh.count} selections since the gateway started.`;
  } catch (error) {
    byId("status").textContent = error instanceof TypeError ? "The gateway does not answer." : error.message;
  }
  timer = setTimeout(refresh, 1000);
}

byId("unlock").addEventListener("submit", async (event) => {
  event.preventDefault();
  const headers = { Authorization: `Bearer ${byId("key").value}` };
  const answer = await fetch("/live/session", { method: "POST", headers }).catch(() => null);
  if (answer && answer.ok) byId("key").value = "";
  refresh();
});
refresh();

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
const share = (radmoe) => (radmoe.basin ? `${Math.round(100 * radmoe.basin.share)}%` : "–");

async function ask(path) {
  const key = sessionStorage.getItem("radmoe-key");
  const answer = await fetch(path, { headers: key ? { Authorization: `Bearer ${key}` } : {}, cache: "no-store" });
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
  const link = element("a", entry.answer.trim() || "(no text)");
  link.href = `#${entry.id}`;
  cell.append(link);
  line.append(cell, element("td", entry.radmoe.method), element("td", entry.radmoe.kind || "–"));
  line.append(element("td", entry.radmoe.sampled.rollouts, "number"), element("td", share(entry.radmoe), "number"));
  line.append(element("td", figure(entry.radmoe.margin, 4), "number"));
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

async function open() {
  const id = decodeURIComponent(location.hash.slice(1));
  byId("detail").hidden = !id;
  if (!id) return;
  try {
    const entry = await ask(`/live/${encodeURIComponent(id)}`);
    const { radmoe } = entry;
    const parts = [`${entry.model}`, `${radmoe.sampled.rollouts} rollouts, ${radmoe.sampled.tokens} tokens`];
    parts.push(`chosen by ${radmoe.method}`, radmoe.kind ? `kind ${radmoe.kind} (${radmoe.kind_source})` : "no kind");
    if (radmoe.reason) parts.push(radmoe.reason);
    byId("detail-summary").textContent = parts.join("; ");
    byId("detail-prompt").textContent = entry.prompt || "(not known)";
    const order = entry.rollouts.slice().sort((a, b) =>
      (b.index === radmoe.pick) - (a.index === radmoe.pick) || (b.density ?? -1) - (a.density ?? -1));
    byId("detail-rollouts").replaceChildren(...order.map((rollout) => {
      const item = element("li", null, rollout.index === radmoe.pick ? "pick" : "");
      const facts = [rollout.index === radmoe.pick ? `Rollout ${rollout.index}, the pick` : `Rollout ${rollout.index}`];
      facts.push(`density ${figure(rollout.density, 4)}`, `basin ${rollout.basin ?? "–"}`, rollout.finish_reason);
      const text = element("pre", rollout.text);
      text.tabIndex = 0;
      item.append(element("p", facts.join(", ")), text);
      return item;
    }));
    byId("detail-title").focus();
  } catch (error) {
    byId("detail-summary").textContent = error.message;
    byId("detail-rollouts").replaceChildren();
  }
}

byId("unlock").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem("radmoe-key", byId("key").value);
  refresh();
  open();
});
addEventListener("hashchange", open);
refresh();
open();

// Elements made of tags, properties and text nodes. Nothing here, or in any other part, parses markup.

function el(tag, properties, ...children) {
  const node = document.createElement(tag);
  return filled(node, properties, children, (name, value) => node.setAttribute(name, value));
}

function svg(tag, attributes, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  return filled(node, attributes, children, (name, value) => node.setAttribute(name, value));
}

function filled(node, properties, children, set) {
  for (const [name, value] of Object.entries(properties || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else set(name, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

function replaceChildren(node, ...children) {
  node.replaceChildren(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

// A table or text that scrolls by itself can be reached by keyboard, and has a name.
function scroller(label, ...children) {
  return el("div", { class: "scroller", tabindex: "0", role: "region", "aria-label": label }, ...children);
}

function button(label, title, onclick, properties) {
  return el("button", { type: "button", title, onclick, ...properties }, label);
}

// A colour of the style sheet as the theme has it now, for canvases: [red, green, blue].
const themeColours = new Map(); // emptied when the theme changes
function themeColour(name) {
  if (!themeColours.has(name)) {
    const probe = el("span");
    probe.style.color = `var(--${name})`;
    document.body.append(probe);
    themeColours.set(name, getComputedStyle(probe).color.match(/[\d.]+/g).slice(0, 3).map(Number));
    probe.remove();
  }
  return themeColours.get(name);
}

function mixed(from, to, share) {
  return from.map((value, i) => Math.round(value + (to[i] - value) * share));
}

// What the page calls its problems and their rollouts: an agent leaves trajectories of issues.
const NOUNS = { problem: "problem", rollout: "rollout" };

function nameAfter(index) {
  const agents = index.problems.length > 0 && index.problems.every((entry) => entry.kind === "agent");
  Object.assign(NOUNS, agents ? { problem: "issue", rollout: "trajectory" } : { problem: "problem", rollout: "rollout" });
}

function several(noun) {
  return noun.endsWith("y") ? `${noun.slice(0, -1)}ies` : `${noun}s`;
}

function plural(count, noun) {
  return `${count.toLocaleString("en")} ${count === 1 ? noun : several(noun)}`;
}

function capital(word) {
  return word[0].toUpperCase() + word.slice(1);
}

// What appears beside the pointer: lines of text. There is one for the whole page.
const tip = {
  node: null,
  show(event, lines) {
    if (!this.node) {
      this.node = el("div", { class: "tip", "aria-hidden": "true" });
      document.body.append(this.node);
    }
    replaceChildren(this.node, ...lines.map((line) => el("div", {}, line)));
    this.node.hidden = false;
    const box = this.node.getBoundingClientRect();
    const left = Math.min(event.clientX + 14, innerWidth - box.width - 8);
    const top = event.clientY + 18 + box.height > innerHeight ? event.clientY - box.height - 10 : event.clientY + 18;
    this.node.style.left = `${Math.max(4, left)}px`;
    this.node.style.top = `${Math.max(4, top)}px`;
  },
  hide() {
    if (this.node) this.node.hidden = true;
  },
};

function percent(share) {
  return `${Math.round(100 * share)}%`;
}

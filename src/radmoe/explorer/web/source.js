// Where blocks come from: elements of this file, or a server. A source has index() and problem(place).

function fileSource() {
  const block = async (id) => {
    const node = document.getElementById(id);
    if (!node) throw new Error(`the file has no block ${id}: it is not complete`);
    return readBlock(bytesOf(node.textContent));
  };
  return { index: () => block("index"), problem: (place) => block(`problem-${place}`) };
}

function fetchSource(indexUrl, problemUrl) {
  const block = async (url) => readBlock(await (await askServer(url)).arrayBuffer());
  return { index: () => block(indexUrl), problem: (place) => block(`${problemUrl}${place}`) };
}

// What the page's own server answers. Where it wants an API key, the visitor is asked for one, which this tab alone keeps.
async function askServer(url) {
  const key = TAB.getItem("radmoe-key");
  const answer = await fetch(url, key ? { headers: { Authorization: `Bearer ${key}` } } : {});
  if (answer.status === 401) {
    if (key === TAB.getItem("radmoe-key")) await askForKey(key ? "The server refused this key." : "");
    return askServer(url);
  }
  if (answer.ok) return answer;
  const document = await answer.json().catch(() => null);
  throw new Error(document?.error?.message ?? `the server answered ${answer.status} for ${url}`);
}

let asking = null; // several requests may wait for the same key
function askForKey(complaint) {
  asking ??= new Promise((given) => {
    const input = el("input", { type: "password", id: "key", name: "key", autocomplete: "off", required: true, "aria-describedby": "key-note" });
    const note = el("p", { class: complaint ? "note" : "about", id: "key-note", role: "alert" }, complaint || "It stays in this tab, until the tab is closed.");
    const submit = (event) => {
      event.preventDefault();
      if (!/^[!-~]+$/.test(input.value.trim())) {
        note.className = "note";
        return replaceChildren(note, "A key has letters, digits and signs of ASCII only.");
      }
      TAB.setItem("radmoe-key", input.value.trim());
      asking = null;
      dialog.remove();
      given();
    };
    const dialog = el("dialog", { class: "help", "aria-labelledby": "key-title", onclose: () => dialog.isConnected && dialog.showModal() },
      el("h2", { id: "key-title" }, "This server wants an API key"),
      el("form", { onsubmit: submit }, el("label", { for: "key" }, "API key"), input, el("button", {}, "Show the page"), note));
    document.body.append(dialog);
    dialog.showModal();
  });
  return asking;
}

// What this tab alone keeps: it is in no address, and is gone with the tab.
function tabStorage() {
  try {
    return sessionStorage;
  } catch { // a browser that lets pages keep nothing
    const kept = new Map();
    return { getItem: (name) => kept.get(name) ?? null, setItem: (name, value) => kept.set(name, value), removeItem: (name) => kept.delete(name) };
  }
}
const TAB = tabStorage();

// A source that keeps the last problems it read.
function keeping(source, most = 6) {
  const kept = new Map();
  return {
    index: () => source.index(),
    problem(place) {
      const problem = kept.get(place) ?? source.problem(place).then((block) => new Problem(block, place));
      kept.delete(place);
      kept.set(place, problem);
      problem.catch(() => kept.delete(place));
      if (kept.size > most) kept.delete(kept.keys().next().value);
      return problem;
    },
  };
}

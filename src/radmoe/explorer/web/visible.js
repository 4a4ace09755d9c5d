// What others wrote, in which every character can be seen: the rules of radmoe.system.printing.visible.

const UNSEEN =
  "\\u00ad\\u034f\\u061c\\u115f\\u1160\\u17b4\\u17b5\\u180b-\\u180f\\u200b-\\u200f\\u2028-\\u202e\\u2060-\\u206f\\u3164" +
  "\\ufe00-\\ufe0f\\ufeff\\uffa0\\ufff0-\\ufffb\\u{13430}-\\u{1343f}\\u{1bca0}-\\u{1bca3}\\u{1d173}-\\u{1d17a}\\u{e0000}-\\u{e0fff}";
const CONTROLS = "\\u0000-\\u001f\\u007f-\\u009f";
const SURROGATES = "\\ud800-\\udfff";
const EMOJI = "\\u2190-\\u21ff\\u2300-\\u23ff\\u2600-\\u27bf\\u2b00-\\u2bff\\u{1f000}-\\u{1faff}";
const JOINING = "\\u0600-\\u061b\\u0620-\\u0dff";
const MEANT =
  `(?:(?<=[${EMOJI}])|(?<=[${EMOJI}]\\ufe0f))\\u200d(?=[${EMOJI}])` +
  "|(?<=\\u{1f3f4})[\\u{e0030}-\\u{e0039}\\u{e0061}-\\u{e007a}]{2,6}\\u{e007f}" +
  `|(?<=[${JOINING}])[\\u200c\\u200d](?=[${JOINING}])` +
  `|(?<=[^${CONTROLS}${SURROGATES}${UNSEEN}])[\\ufe00-\\ufe0f]`;
const FOREIGN = new RegExp(`(${MEANT})|[${CONTROLS}${SURROGATES}${UNSEEN}]`, "gu");
const NAMED = { "\n": "\\n", "\r": "\\r", "\t": "\\t" };

function escapeOf(character) {
  const code = character.codePointAt(0);
  if (NAMED[character]) return NAMED[character];
  if (code >= 0xdc80 && code <= 0xdcff) return `\\x${(code - 0xdc00).toString(16)}`; // a byte that is no UTF-8
  if (code < 0x100) return `\\x${code.toString(16).padStart(2, "0")}`;
  return code < 0x10000 ? `\\u${code.toString(16).padStart(4, "0")}` : `\\U${code.toString(16).padStart(8, "0")}`;
}

// The places of a text that need an escape: [start, stop, escape]. In a block, line ends and tabs stay.
function escapesIn(text, block) {
  const escapes = [];
  for (const match of text.matchAll(FOREIGN)) {
    if (match[1] !== undefined || (block && (match[0] === "\n" || match[0] === "\t"))) continue;
    const lineEnd = block && match[0] === "\r" && text[match.index + 1] === "\n"; // the line ends once
    escapes.push([match.index, match.index + match[0].length, lineEnd ? "" : escapeOf(match[0])]);
  }
  return escapes;
}

function visible(text, block = false) {
  let out = "";
  let last = 0;
  for (const [start, stop, escape] of escapesIn(text, block)) {
    out += text.slice(last, start) + escape;
    last = stop;
  }
  return out + text.slice(last);
}

// Text nodes for [start, stop) of a text, with escapes as elements of their own. `escapes` are those of the whole text,
// and `from` the first of them that may lie here; returns the nodes and the first escape behind.
function visibleNodes(text, start, stop, escapes, from) {
  const nodes = [];
  let last = start;
  while (from < escapes.length && escapes[from][0] < stop) {
    const [first, end, escape] = escapes[from++];
    if (first > last) nodes.push(text.slice(last, first));
    if (escape) nodes.push(el("span", { class: "escape" }, escape));
    last = end;
  }
  if (stop > last) nodes.push(text.slice(last, stop));
  return [nodes, from];
}

// A short text of somebody else's in one line, apart from the direction of the text around it.
function theirs(text, longest = 200) {
  const shown = visible(String(text));
  const half = (longest - 1) >> 1;
  return el("bdi", {}, shown.length <= longest ? shown : `${shown.slice(0, half)}…${shown.slice(-half)}`);
}

// The text of each token, from the bytes of all of them. A character that spans tokens belongs to the one that completes
// it, and a byte that is no UTF-8 becomes a lone surrogate (U+DC80 and up), which is shown as its value.
function decodeTokens(table, begins, tokens) {
  const texts = new Array(tokens.length);
  let pending = [];
  let needed = 0;
  const broken = () => pending.splice(0).map((byte) => String.fromCharCode(0xdc00 + byte)).join("");
  for (let i = 0; i < tokens.length; i++) {
    let text = "";
    for (let at = begins[tokens[i]]; at < begins[tokens[i] + 1]; at++) {
      const byte = table[at];
      if (needed) {
        const lowest = pending.length === 1 ? { 0xe0: 0xa0, 0xf0: 0x90 }[pending[0]] || 0x80 : 0x80;
        const highest = pending.length === 1 ? { 0xed: 0x9f, 0xf4: 0x8f }[pending[0]] || 0xbf : 0xbf;
        if (byte >= lowest && byte <= highest) {
          pending.push(byte);
          if (--needed === 0) {
            const lead = pending[0];
            let code = lead & (pending.length === 2 ? 0x1f : pending.length === 3 ? 0x0f : 0x07);
            for (const more of pending.slice(1)) code = (code << 6) | (more & 0x3f);
            text += String.fromCodePoint(code);
            pending = [];
          }
          continue;
        }
        text += broken();
        needed = 0;
      }
      if (byte < 0x80) text += String.fromCharCode(byte);
      else if (byte >= 0xc2 && byte <= 0xf4) {
        pending = [byte];
        needed = byte < 0xe0 ? 1 : byte < 0xf0 ? 2 : 3;
      } else text += String.fromCharCode(0xdc00 + byte);
    }
    texts[i] = text;
  }
  if (needed && tokens.length) texts[tokens.length - 1] += broken();
  return texts;
}

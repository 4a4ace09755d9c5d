// What two texts have in common, word by word: Myers' algorithm, with a bound on its work.

const MOST_EDITS = 1500;

function wordsOf(text) {
  return text.match(/\s+|[\p{L}\p{N}_]+|[^\s\p{L}\p{N}_]/gu) || [];
}

// Pieces [{kind: "same" | "left" | "right", words}] and whether the texts were too different to be aligned.
function diffWords(left, right) {
  let first = 0;
  while (first < left.length && first < right.length && left[first] === right[first]) first++;
  let [a, b] = [left.length, right.length];
  while (a > first && b > first && left[a - 1] === right[b - 1]) {
    a--;
    b--;
  }
  const middle = shortestEdit(left.slice(first, a), right.slice(first, b));
  const pieces = [{ kind: "same", words: left.slice(0, first) }];
  pieces.push(...(middle ?? [{ kind: "left", words: left.slice(first, a) }, { kind: "right", words: right.slice(first, b) }]));
  pieces.push({ kind: "same", words: left.slice(a) });
  return { pieces: pieces.filter((piece) => piece.words.length), aligned: middle !== null };
}

function shortestEdit(left, right) {
  const [n, m] = [left.length, right.length];
  const most = Math.min(n + m, MOST_EDITS);
  const trace = []; // after e edits, how far diagonal k reaches in the left text: trace[e][k + e]
  for (let edits = 0; edits <= most; edits++) {
    const reach = new Int32Array(2 * edits + 1);
    for (let k = -edits; k <= edits; k += 2) {
      let x = edits === 0 ? 0 : stepsDown(trace, edits, k) ? trace[edits - 1][k + edits] : trace[edits - 1][k + edits - 2] + 1;
      while (x < n && x - k < m && left[x] === right[x - k]) x++;
      reach[k + edits] = x;
      if (x >= n && x - k >= m) {
        trace.push(reach);
        return tracedBack(trace, left, right);
      }
    }
    trace.push(reach);
  }
  return null;
}

// Whether the best way to diagonal k takes a word of the right text (down) rather than one of the left.
function stepsDown(trace, edits, k) {
  const before = trace[edits - 1];
  return k === -edits || (k !== edits && before[k + edits - 2] < before[k + edits]);
}

function tracedBack(trace, left, right) {
  const steps = [];
  let [x, y] = [left.length, right.length];
  for (let edits = trace.length - 1; edits > 0; edits--) {
    const k = x - y;
    const down = stepsDown(trace, edits, k);
    const before = down ? k + 1 : k - 1;
    const fromX = trace[edits - 1][before + edits - 1];
    const [startX, startY] = down ? [fromX, fromX - before + 1] : [fromX + 1, fromX - before];
    for (; x > startX && y > startY; x--, y--) steps.push(["same", left[x - 1]]);
    if (down) steps.push(["right", right[--y]]);
    else steps.push(["left", left[--x]]);
  }
  for (; x > 0; x--) steps.push(["same", left[x - 1]]);
  const pieces = [];
  for (const [kind, word] of steps.reverse()) {
    const last = pieces[pieces.length - 1];
    if (last && last.kind === kind) last.words.push(word);
    else pieces.push({ kind, words: [word] });
  }
  return pieces;
}

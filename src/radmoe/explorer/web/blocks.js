// Blocks as radmoe.explorer.blocks writes them: gzip of a header in JSON and typed arrays.

const ARRAYS = { u1: Uint8Array, u2: Uint16Array, u4: Uint32Array, i1: Int8Array, i2: Int16Array, i4: Int32Array, f4: Float32Array };

function bytesOf(base64) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(base64);
  const text = atob(base64);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return bytes;
}

async function readBlock(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  const buffer = await new Response(stream).arrayBuffer();
  const length = new DataView(buffer).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
  const start = Math.ceil((4 + length) / 8) * 8;
  const arrays = {};
  for (const [name, [type, shape, offset]] of Object.entries(header.arrays)) {
    arrays[name] = new ARRAYS[type](buffer, start + offset, shape.reduce((product, side) => product * side, 1));
    arrays[name].shape = shape;
  }
  return { header, arrays };
}

// One problem with its arrays under names.
class Problem {
  constructor({ header, arrays }, place) {
    Object.assign(this, header);
    this.place = place;
    this.arrays = arrays;
    this.views = header.views.map((view, i) => new View(this, view, i));
    this.texts = new Map();
  }

  number(i) {
    return this.numbers[i];
  }

  indexOf(number) {
    return this.numbers.indexOf(number);
  }

  correct(i) {
    return this.arrays.correct ? this.arrays.correct[i] : 2;
  }

  answer(i) {
    return this.arrays.answer ? (this.answers[this.arrays.answer[i]] ?? null) : null;
  }

  length(i) {
    return this.arrays.lengths[i];
  }

  likelihood(i) {
    return this.arrays.likelihood ? this.arrays.likelihood[i] : null;
  }

  // The kept stretches of a rollout: [{start, stop, texts, logprobs, controls}]; the texts are those of tokens.
  stretches(i) {
    if (this.texts.has(i)) return this.texts.get(i);
    const { kept_begin, kept_start, kept_stop, tokens, logprobs, table, table_begin, control } = this.arrays;
    if (!this.offsets) {
      this.offsets = [0];
      for (let s = 0; s < kept_start.length; s++) this.offsets.push(this.offsets[s] + kept_stop[s] - kept_start[s]);
    }
    const stretches = [];
    for (let s = kept_begin[i]; s < kept_begin[i + 1]; s++) {
      const own = tokens.subarray(this.offsets[s], this.offsets[s + 1]);
      stretches.push({
        start: kept_start[s],
        stop: kept_stop[s],
        texts: decodeTokens(table, table_begin, own),
        logprobs: logprobs ? logprobs.subarray(this.offsets[s], this.offsets[s + 1]) : null,
        controls: Array.from(own, (token) => control[token] === 1),
      });
    }
    this.texts.set(i, stretches);
    return stretches;
  }

  // The turns of a rollout: [{start, stop, given, givenText}]; without recorded steps, between the boundaries of its actions.
  turns(i) {
    const { step_begin, step_start, given_length, given_begin, given, table, table_begin } = this.arrays;
    const end = this.length(i);
    const turns = [];
    if (step_begin) {
      for (let s = step_begin[i]; s < step_begin[i + 1]; s++) {
        const own = given.subarray(given_begin[s], given_begin[s + 1]);
        turns.push({
          start: step_start[s],
          stop: s + 1 < step_begin[i + 1] ? step_start[s + 1] : end,
          given: given_length[s],
          givenText: decodeTokens(table, table_begin, own).join(""),
        });
      }
      if (turns.length) return turns;
    }
    const union = this.views.find((view) => view.readout.endsWith("@union"));
    const starts = union ? union.spans(i).map(([start]) => start) : [];
    const cuts = [...new Set([0, ...starts])].sort((a, b) => a - b);
    return cuts.map((start, k) => ({ start, stop: cuts[k + 1] ?? end, given: 0, givenText: "" }));
  }
}

// A problem under one readout. Places count in the order of `members`: basin by basin, the pick first.
class View {
  constructor(problem, header, number) {
    Object.assign(this, header);
    this.problem = problem;
    const prefix = `${number}.`;
    for (const [name, array] of Object.entries(problem.arrays)) {
      if (name.startsWith(prefix)) this[name.slice(prefix.length)] = array;
    }
    this.compared = this.root !== undefined;
    this.placeOf = new Map(Array.from(this.members, (rollout, place) => [rollout, place]));
    this.basins = [];
    this.basinOf = new Map();
    if (this.compared) {
      for (const root of this.root) {
        if (!this.basinOf.has(root)) this.basinOf.set(root, this.basinOf.size);
      }
    }
  }

  // Every rollout: the members in their order, then those that were not located.
  order() {
    const rest = [];
    for (let i = 0; i < this.problem.rollouts; i++) if (!this.placeOf.has(i)) rest.push(i);
    return [...this.members, ...rest];
  }

  basinNumber(i) {
    const place = this.placeOf.get(i);
    return place === undefined || !this.compared ? null : this.basinOf.get(this.root[place]);
  }

  meanSimilarity(i) {
    const place = this.placeOf.get(i);
    return place === undefined || !this.compared ? null : this.density[place];
  }

  similarityOfPlaces(a, b) {
    if (a === b) return 1;
    const [low, high] = a < b ? [a, b] : [b, a];
    const n = this.members.length;
    return this.similar[low * n - (low * (low + 1)) / 2 + high - low - 1] / 255;
  }

  similarity(i, j) {
    const [a, b] = [this.placeOf.get(i), this.placeOf.get(j)];
    return a === undefined || b === undefined || !this.compared ? null : this.similarityOfPlaces(a, b);
  }

  neighbours(i) {
    const place = this.placeOf.get(i);
    if (place === undefined || !this.compared) return [];
    const k = this.near.shape[1];
    return Array.from(this.near.subarray(place * k, (place + 1) * k), (other) => this.members[other]);
  }

  spans(i) {
    const place = this.placeOf.get(i);
    const spans = [];
    if (place === undefined) return spans;
    for (let s = this.span_begin[place]; s < this.span_begin[place + 1]; s++) {
      spans.push([this.span_start[s], this.span_stop[s]]);
    }
    return spans;
  }

  anchor(i) {
    const place = this.placeOf.get(i);
    return place === undefined ? null : [this.anchor_start[place], this.anchor_start[place] + this.anchor_length[place]];
  }

  // In how many tokens of its windows a rollout used each expert, layer by layer.
  fired(i) {
    const place = this.placeOf.get(i);
    if (place === undefined) return null;
    const n = this.members.length;
    return Int32Array.from(this.usual, (count, at) => count + this.more[at * n + place]);
  }

  // The rollout to compare with at first: the best outside the pick's basin, else the pick, else a neighbour.
  opposite(i) {
    const others = [this.rival, this.pick, ...this.neighbours(i), ...this.order()];
    return others.find((other) => other !== null && other !== undefined && other !== i) ?? i;
  }
}

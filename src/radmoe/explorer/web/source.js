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
  const block = async (url) => {
    const answer = await fetch(url);
    if (!answer.ok) throw new Error(`the server answered ${answer.status} for ${url}`);
    return readBlock(await answer.arrayBuffer());
  };
  return { index: () => block(indexUrl), problem: (place) => block(`${problemUrl}${place}`) };
}

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

// Tables that sort and filter.

// `columns` are [{title, number, value(row), cell(row)}]; rows are put on the page in chunks. Whoever changes `rows` filters again:
// what is shown already stays where it is. With `most` among the options, so many rows are shown.
function sortableTable(label, columns, rows, options = {}) {
  let [sorted, falling] = [null, false];
  let kept = rows;
  const nodes = new WeakMap();
  const body = el("tbody", {});
  const heads = columns.map((column, k) => el("th", { scope: "col", class: column.number ? "number" : null },
    el("button", { type: "button", title: `Sort by ${column.title}`, onclick: () => sort(k) }, column.title)));
  const table = el("table", { class: options.class }, el("thead", {}, el("tr", {}, heads)), body);
  const sort = (k) => {
    if (sorted === k && falling !== Boolean(columns[k].number)) [sorted, falling] = [null, false];
    else if (sorted === k) falling = !falling;
    else [sorted, falling] = [k, Boolean(columns[k].number)];
    draw();
  };
  let drawing = 0;
  const draw = () => {
    heads.forEach((head, k) => head.setAttribute("aria-sort", k !== sorted ? "none" : falling ? "descending" : "ascending"));
    let order = kept;
    if (sorted !== null) {
      const value = columns[sorted].value;
      const absent = (one) => one === null || one === undefined;
      order = [...kept].sort((one, two) => {
        const [x, y] = [value(one), value(two)];
        if (absent(x) || absent(y)) return absent(x) - absent(y);
        const sign = typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y), "en", { numeric: true });
        return falling ? -sign : sign;
      });
    }
    order = order.slice(0, options.most);
    const round = ++drawing;
    let [at, next] = [0, body.firstChild];
    const step = () => {
      if (round !== drawing) return;
      for (const stop = Math.min(order.length, at + 150); at < stop; at++) {
        const row = order[at];
        if (!nodes.has(row)) nodes.set(row, options.row ? options.row(row, columns) : plainRow(row, columns));
        if (nodes.get(row) === next) next = next.nextSibling;
        else body.insertBefore(nodes.get(row), next);
      }
      if (at < order.length) requestAnimationFrame(step);
      else while (body.childNodes.length > order.length) body.lastChild.remove();
    };
    step();
  };
  const filter = (keep) => {
    kept = rows.filter(keep);
    draw();
    return kept.length;
  };
  draw();
  return { node: scroller(label, table), filter, draw };
}

function plainRow(row, columns) {
  return el("tr", {}, columns.map((column) => column.cell(row)));
}

// A table of the evaluation, folded until somebody opens it.
function evaluationTable(table, open) {
  const box = el("details", { class: "evaluation" }, el("summary", {}, theirs(table.title)));
  const fill = () => {
    if (box.children.length > 1) return;
    const columns = [
      ...(table.section ? [{ title: table.section, value: (row) => row.section, cell: (row) => el("td", {}, theirs(row.section, 60)) }] : []),
      ...table.columns.map((column, k) => ({
        title: visible(column.title),
        number: k > 0 && !column.text,
        value: (row) => row.cells[k].sort ?? (row.cells[k].text === "--" ? null : row.cells[k].text),
        cell: (row) => cellNode(row.cells[k], k > 0 && !column.text, k === 0),
      })),
    ];
    const made = sortableTable(table.title, columns, table.rows);
    const count = el("span", { class: "count", role: "status" });
    const search = el("input", { type: "search", placeholder: "filter rows", "aria-label": `Filter rows of ${table.title}`, oninput: () => {
      const wanted = search.value.toLowerCase();
      const left = made.filter((row) => [row.section, ...row.cells.map((cell) => cell.text)].join(" ").toLowerCase().includes(wanted));
      replaceChildren(count, wanted ? `${left} of ${table.rows.length} rows` : "");
    } });
    box.append(el("p", { class: "filter" }, search, count), made.node, ...table.notes.map((note) => el("p", { class: "about" }, theirs(note, 2000))));
  };
  if (open) {
    box.open = true;
    fill();
  }
  box.addEventListener("toggle", () => box.open && fill());
  return box;
}

function cellNode(cell, number, heading) {
  const value = cell.best ? el("b", {}, theirs(cell.text)) : theirs(cell.text, 120);
  const more = [cell.beside, cell.interval].filter(Boolean).join(" ");
  return el(heading ? "th" : "td", { class: number ? "number" : null, scope: heading ? "row" : null, title: cell.note ? visible(cell.note) : null },
    value, more ? el("span", { class: "beside-value" }, ` ${more}`) : null);
}

// What the report page and the explorer share: text, tables and plots. It is plain code without imports, put before theirs.
const grouped = new Intl.NumberFormat("en", { maximumSignificantDigits: 6 });
const whole = new Intl.NumberFormat("en");
const number = (value) => value === null ? "–" : Number.isInteger(value) ? whole.format(value) : grouped.format(value);

// Keys are text: they go into text nodes, never into markup. Characters that are not seen, or that turn the
// direction of what follows, are shown by their code.
const hidden = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]/u;
const element = (name, attributes = {}, ...inside) => {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...inside);
  return made;
};
const visible = (text) => {
  const box = element("bdi");
  if (!hidden.test(text)) {
    box.textContent = text;
    return box;
  }
  for (const character of text) {
    if (hidden.test(character)) {
      const code = character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0");
      box.append(element("span", { class: "code" }, `U+${code}`));
    } else box.append(character);
  }
  return box;
};
const LONG = 120;
const keyText = (text) => {
  if (text.length <= LONG) return text === "" ? element("span", { class: "code" }, "empty") : visible(text);
  const start = [...text.slice(0, LONG)].slice(0, -1).join("");
  return element("details", {}, element("summary", {}, visible(start), ` … (${whole.format(text.length)} characters)`), visible(text));
};


const between = (low, high) => low === null ? `at most ${number(high)}` : `${number(low)} to ${number(high)}`;

// Put a table into the elements that `find` gives by id: an order of rows, those that match, and one page of them.
// A column "low" before a column "high" is an interval; so is a column of the kind "interval", with `highs`.
const showTable = (find, data, order_by = "count") => {
  const columns = Object.fromEntries(data.columns.map((column) => [column.name, column]));
  const held = data.columns.length ? data.columns[0].values.length : 0;
  if (columns.low && columns.high) Object.assign(columns.low, { kind: "interval", highs: columns.high.values });
  const shown = data.columns.filter((column) => !columns.low || column !== columns.high);
  const everything = Array.from({ length: held }, (_, row) => row);
  const sorted = (column, falling) => {
    const values = column.kind === "digits" ? column.values.map(Number) : column.values;
    const sign = falling ? -1 : 1;
    return everything.slice().sort((a, b) => {
      if (values[a] < values[b]) return -sign;
      if (values[a] > values[b]) return sign;
      return a - b;
    });
  };
  const state = { column: columns[order_by] || null, falling: true, page: 0, words: "" };
  let order = state.column ? sorted(state.column, true) : everything;
  let rows = order;
  const texts = data.columns.filter((column) => column.kind === "text" || column.kind === "digits");
  let searched = null;
  const match = () => {
    if (!state.words) return (rows = order);
    searched ??= everything.map((row) => texts.map((column) => column.values[row]).join("\n").toLowerCase());
    rows = order.filter((row) => searched[row].includes(state.words));
  };
  const head = find("table").tHead, body = find("table").tBodies[0];
  const heads = shown.map((column) => {
    const button = element("button", { type: "button" }, visible(column === columns.low ? "95 % interval" : column.name));
    const cell = element("th", { scope: "col", class: css(column) }, button);
    button.addEventListener("click", () => {
      state.falling = state.column === column ? !state.falling : numeric(column);
      state.column = column;
      state.page = 0;
      order = sorted(column, state.falling);
      match();
      draw();
    });
    return { column, cell };
  });
  head.replaceChildren(element("tr", {}, ...heads.map(({ cell }) => cell)));
  function numeric(column) { return column.kind === "number" || column.kind === "interval"; }
  function css(column) {
    return `${numeric(column) ? "number" : ""} ${column === columns.weight ? "weight" : ""}`.trim();
  }
  const cell = (column, row) => {
    if (column.kind === "interval") return column.highs[row] === null ? "–" : between(column.values[row], column.highs[row]);
    return column.kind === "number" ? number(column.values[row]) : keyText(column.values[row]);
  };
  const size = () => Number(find("size").value);
  function draw() {
    const pages = Math.max(1, Math.ceil(rows.length / size()));
    state.page = Math.min(Math.max(state.page, 0), pages - 1);
    const from = state.page * size(), page = rows.slice(from, from + size());
    body.replaceChildren(...page.map((row) =>
      element("tr", {}, ...shown.map((one) => element("td", { class: css(one) }, cell(one, row))))));
    for (const { column, cell: box } of heads) {
      box.setAttribute("aria-sort", column === state.column ? (state.falling ? "descending" : "ascending") : "none");
    }
    const span = page.length ? `${whole.format(from + 1)} to ${whole.format(from + page.length)} of ` : "";
    const found = state.words ? `${whole.format(rows.length)} that match, of ${whole.format(held)}` : whole.format(held);
    const left = data.rows > held ? ` (the largest of ${whole.format(data.rows)}; all are in the saved release)` : "";
    find("status").textContent = `${span}${found}${left}`;
    find("first").disabled = find("previous").disabled = state.page === 0;
    find("last").disabled = find("next").disabled = state.page === pages - 1;
  }
  const go = (page) => () => { state.page = page(); draw(); };
  find("first").onclick = go(() => 0);
  find("previous").onclick = go(() => state.page - 1);
  find("next").onclick = go(() => state.page + 1);
  find("last").onclick = go(() => Infinity);
  find("size").onchange = go(() => 0);
  find("search").oninput = () => {
    state.words = find("search").value.toLowerCase();
    state.page = 0;
    match();
    draw();
  };
  draw();
};

// Plots.
const svg = (name, attributes, text) => {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
};
const points = (xs, ys) => xs.map((x, i) => `${x.toFixed(1)},${ys[i].toFixed(1)}`);
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const powers = (top) => Array.from({ length: Math.ceil(Math.log10(Math.max(top, 1))) + 1 }, (_, k) => 10 ** k).filter((v) => v <= top);
const logTicks = (low, high) => {
  const within = (steps) => {
    const found = [];
    for (let k = Math.floor(Math.log10(low)); 10 ** k <= high; k++) found.push(...steps.map((s) => Number(`${s}e${k}`)).filter((v) => v >= low && v <= high));
    return found;
  };
  return [[1], [1, 3], [1, 2, 5]].map(within).find((found) => found.length > 2) ?? [low, high];
};
const round = (top, wanted, least = 1) => {
  const rough = top / wanted, unit = 10 ** Math.floor(Math.log10(rough));
  const step = Math.max(least, [1, 2, 5, 10].map((k) => k * unit).find((s) => s >= rough));
  return Array.from({ length: Math.floor(top / step) + 1 }, (_, k) => k * step);
};
const roomOf = (box) => Math.max(260, Math.min(box.clientWidth || 560, 760));
// A frame with axes; x and y map values to 0..1, and legend is the number of its lines. It returns where things are.
const frame = (box, label, { x, y, xTicks, yTicks, xName, yName, format, legend }) => {
  const width = roomOf(box), height = Math.round(Math.min(340, width * 0.7));
  const side = { left: 46, right: 14, top: legend ? 32 + 18 * legend : 26, bottom: 42 };
  const right = width - side.right, bottom = height - side.bottom;
  const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
  const px = (value) => side.left + x(value) * (right - side.left), py = (value) => bottom - y(value) * (bottom - side.top);
  for (const tick of yTicks) {
    root.append(svg("line", { class: "axis", x1: side.left, x2: right, y1: py(tick), y2: py(tick) }));
    root.append(svg("text", { x: side.left - 8, y: py(tick) + 4, "text-anchor": "end" }, format(tick)));
  }
  root.append(svg("line", { class: "axis", x1: side.left, x2: right, y1: bottom, y2: bottom }));
  for (const tick of xTicks) {
    root.append(svg("line", { class: "axis", x1: px(tick), x2: px(tick), y1: bottom, y2: bottom + 5 }));
    root.append(svg("text", { x: px(tick), y: bottom + 19, "text-anchor": "middle" }, short.format(tick)));
  }
  root.append(svg("text", { x: right, y: height - 5, "text-anchor": "end" }, xName));
  root.append(svg("text", { x: 0, y: 12 }, yName));
  const cursor = svg("line", { class: "cursor", y1: side.top, y2: bottom, visibility: "hidden" });
  root.append(cursor);
  box.replaceChildren(root);
  return { root, px, py, bottom, right, cursor };
};
// The nearest point under a pointer, in words below the plot.
const follow = ({ root, cursor }, xs, readout, words) => {
  const show = (event) => {
    const at = (event.clientX - root.getBoundingClientRect().left) * root.viewBox.baseVal.width / root.clientWidth;
    let best = 0;
    xs.forEach((x, i) => { if (Math.abs(x - at) < Math.abs(xs[best] - at)) best = i; });
    cursor.setAttribute("x1", xs[best]);
    cursor.setAttribute("x2", xs[best]);
    cursor.setAttribute("visibility", "visible");
    readout.replaceChildren(...words(best));
  };
  root.addEventListener("pointermove", show);
  root.addEventListener("pointerdown", show);
};

// Counts by rank, with the band of their intervals.
const rankPlot = (box, readout, data) => {
  const columns = Object.fromEntries(data.columns.map((column) => [column.name, column]));
  const texts = data.columns.filter((column) => column.kind === "text" || column.kind === "digits");
  const order = columns.count.values.map((_, row) => row).sort((a, b) => columns.count.values[b] - columns.count.values[a] || a - b);
  const places = data.ranks.map((rank) => order[rank - 1]), of = (column) => places.map((row) => Math.max(0, column.values[row]));
  const count = places.map((row) => columns.count.values[row]), counted = count.filter((value) => value !== null).length;
  const low = of(columns.low), high = of(columns.high);
  const top = Math.max(1, high.reduce((a, b) => Math.max(a, b), 0)), last = data.ranks[data.ranks.length - 1];
  const y = (value) => Math.log1p(value) / Math.log1p(top);
  const x = (rank) => last > 1 ? Math.log(rank) / Math.log(last) : 0.5;
  const label = `Counts of ${whole.format(last)} keys by rank, from ${between(columns.low.values[places[0]], high[0])} at rank 1 to ${between(columns.low.values[places[places.length - 1]], high[high.length - 1])} at rank ${whole.format(last)}.`;
  const at = frame(box, label, {
    x, y, xTicks: last <= 9 ? data.ranks : powers(last), yTicks: [0, ...powers(top)], xName: "rank", yName: "count", format: (v) => short.format(v),
  });
  const xs = data.ranks.map(at.px);
  const band = [...points(xs, high.map(at.py)), ...points(xs, low.map(at.py)).reverse()];
  at.root.append(svg("polygon", { class: "band", points: band.join(" ") }));
  at.root.append(svg("polyline", { class: "line0", points: points(xs.slice(0, counted), count.slice(0, counted).map((value) => at.py(Math.max(0, value)))).join(" ") }));
  if (places.length <= 40) places.forEach((_, i) => {
    at.root.append(svg("line", { class: "line0", x1: xs[i], x2: xs[i], y1: at.py(low[i]), y2: at.py(high[i]) }));
    if (i < counted) at.root.append(svg("circle", { class: "dot", cx: xs[i], cy: at.py(Math.max(0, count[i])), r: 3.5 }));
  });
  follow(at, xs, readout, (i) => {
    const names = texts.map((column) => visible(column.values[places[i]].slice(0, 80)));
    const ends = between(columns.low.values[places[i]], high[i]), numbers = count[i] === null ? ends : `${number(count[i])} (${ends})`;
    return [`Rank ${whole.format(data.ranks[i])}, ${numbers}: `, ...names.flatMap((name, k) => k ? [", ", name] : [name])];
  });
};

// Up to four lines, { name, x, y }. The x axis begins at zero, or is logarithmic; the y axis is of shares, or of numbers.
const shownShare = (value) => `${Number((100 * value).toPrecision(3))} %`;
const linePlot = (box, readout, plot) => {
  const { lines } = plot, xEnds = lines.flatMap(({ x }) => [x[0], x[x.length - 1]]), end = Math.max(...xEnds), start = Math.min(...xEnds);
  const values = lines.flatMap(({ y }) => y), log = (low, high) => (value) => Math.log(value / low) / Math.log(high / low);
  const top = plot.percent ? 1 : Math.max(...values) || 1, least = Math.min(...values);
  const places = [];
  let left = 0, row = 0;
  for (const name of lines.map(({ name }) => name.length > 28 ? `${name.slice(0, 27)}…` : name)) {
    const wide = 30 + 7 * name.length;
    if (left + wide > roomOf(box)) [left, row] = [0, row + 1];
    places.push({ name, x: left, y: 28 + 18 * row });
    left += wide + 22;
  }
  const named = lines.length > 1, show = plot.percent ? shownShare : (v) => number(v);
  const at = frame(box, plot.label, {
    x: plot.xLog ? log(start, end) : (value) => value / end, y: plot.yLog ? log(least, top) : (value) => Math.min(value, top) / top,
    xTicks: plot.xLog ? logTicks(start, end) : round(end, 6), xName: plot.xName, yName: plot.yName, legend: named ? row + 1 : 0,
    yTicks: plot.percent ? [0, 0.25, 0.5, 0.75, 1] : plot.yLog ? logTicks(least, top) : round(top, 4, 0),
    format: plot.percent ? shownShare : (v) => short.format(v),
  });
  const path = ({ x, y }) => {
    const across = x.map(at.px), up = y.map(at.py), corners = points(across, up);
    return plot.step ? corners.flatMap((corner, i) => i ? [points([across[i]], [up[i - 1]])[0], corner] : [corner]) : corners;
  };
  lines.map((line, k) => svg("polyline", { class: `line${k}`, points: path(line).join(" ") })).reverse().forEach((line) => at.root.append(line));
  if (plot.mark) {
    const [x, y] = [at.px(plot.mark[0]), at.py(plot.mark[1])];
    at.root.append(svg("path", { class: "cursor", d: `M${at.px(start)},${y} H${x} V${at.bottom}`, fill: "none" }), svg("circle", { class: "dot", cx: x, cy: y, r: 5 }));
  }
  if (named) places.forEach(({ name, x, y }, k) => {
    at.root.append(svg("line", { class: `line${k}`, x1: x, x2: x + 24, y1: y, y2: y }));
    at.root.append(svg("text", { class: `name${k}`, x: x + 30, y: y + 4 }, name));
  });
  const nearest = (xs, x) => xs.reduce((best, value, i) => Math.abs(value - x) < Math.abs(xs[best] - x) ? i : best, 0);
  follow(at, lines[0].x.map(at.px), readout, (i) => {
    const x = lines[0].x[i], shares = lines.map((line) => `${named ? `${line.name} ` : ""}${show(line.y[nearest(line.x, x)])}`);
    return [`${plot.xWord} ${number(x)}: ${shares.join(", ")}`];
  });
};

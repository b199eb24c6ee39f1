
// The explorer. The server describes the views and answers each with sentences, numbers and points; this draws them.
const find = (id) => document.getElementById(id);
const views = await (await fetch("views")).json();
const shared = {};  // texts of inputs by name, for all views
const state = { view: "plan", waiting: false, again: false, answer: null, drawn: 0 };
const inputs = () => views[state.view].inputs;
const text = (input) => shared[input.name] ?? input.default;
const box = (id, ...inside) => find(id).replaceChildren(...inside);

// The address: #view?input=text, for the inputs that differ from their defaults.
const query = (all) => new URLSearchParams(inputs().filter((one) => all || text(one) !== one.default).map((one) => [one.name, text(one)]));
const remember = () => history.replaceState(null, "", `#${state.view}${query(false).size ? `?${query(false)}` : ""}`);
const open = () => {
  const [name, given] = location.hash.slice(1).split(/\?(.*)/s);
  state.view = views[name] ? name : "plan";
  for (const one of given === undefined ? [] : inputs()) delete shared[one.name];
  for (const [key, value] of new URLSearchParams(given)) shared[key] = value;
  const view = views[state.view];
  document.title = `${view.title} - dpsieve explorer`;
  box("title", view.title);
  box("intro", view.intro);
  box("views", ...Object.entries(views).map(([key, { title }]) =>
    element("a", { href: `#${key}`, ...(key === state.view ? { "aria-current": "page" } : {}) }, title)));
  for (const id of ["headline", "notes", "tiles", "plots", "python", "command"]) box(id);
  for (const id of ["table-part", "facts-part", "parts-part", "error"]) find(id).hidden = true;
  state.answer = null;
  drawForm();
  ask();
};

// The form.
const stopNear = (stops, value) => {
  const gap = (stop) => Math.abs(Math.log(Math.max(Number(stop), 1e-15)) - Math.log(Math.max(Number(value), 1e-15)));
  return stops.reduce((best, stop, i) => gap(stop) < gap(stops[best]) ? i : best, 0);
};
const changed = (input, value) => {
  shared[input.name] = value;
  hideRows();
  remember();
  ask();
};
const control = (input) => {
  const id = `in-${input.name}`, common = { id, name: input.name, "aria-describedby": `${id}-wrong` };
  if (input.kind === "file") return fileControl(input, common);
  if (input.choices.length) {
    const made = element("select", common, ...input.choices.map((choice) => element("option", { value: choice }, choice.replaceAll("_", " "))));
    made.value = text(input);
    made.addEventListener("change", () => changed(input, made.value));
    return [made];
  }
  const numeric = input.kind === "number" || input.kind === "whole";
  const made = element("input", { ...common, ...(numeric ? { inputmode: "decimal" } : {}), ...(input.suggestions.length ? { list: `${id}-list` } : {}), spellcheck: "false" });
  made.value = text(input);
  made.addEventListener(numeric ? "input" : "change", () => changed(input, made.value));
  if (input.suggestions.length) return [made, element("datalist", { id: `${id}-list` }, ...input.suggestions.map((value) => element("option", { value })))];
  if (!input.stops.length) return [made];
  const slider = element("input", { class: "slider", type: "range", min: 0, max: input.stops.length - 1, "aria-label": `${input.label}, slider` });
  const follow = () => {
    slider.value = stopNear(input.stops, made.value);
    slider.setAttribute("aria-valuetext", made.value);
  };
  follow();
  slider.addEventListener("input", () => {
    made.value = input.stops[slider.value];
    slider.setAttribute("aria-valuetext", made.value);
    changed(input, made.value);
  });
  made.addEventListener("input", follow);
  return [slider, made];
};
const fileControl = (input, common) => {
  const made = element("input", { ...common, type: "file", accept: ".csv,.txt,.tsv" });
  const clear = element("button", { type: "button" }, "Remove");
  clear.hidden = !text(input);
  made.addEventListener("change", async () => {
    if (!made.files.length) return;
    const answer = await fetch("histogram", { method: "POST", body: made.files[0] }).then((got) => got.json(), () => ({ error: GONE }));
    if (answer.error) return complain(answer);
    clear.hidden = false;
    changed(input, answer.histogram);
  });
  clear.addEventListener("click", () => {
    made.value = "";
    clear.hidden = true;
    changed(input, "");
  });
  return [made, clear];
};
const drawForm = () => {
  const groups = new Map([["", []]]);
  for (const input of inputs()) {
    const id = `in-${input.name}`;
    const about = element("p", { class: "about", id: `${id}-about` }, input.help);
    const help = element("button", { type: "button", class: "help", "aria-expanded": "false", "aria-controls": about.id, "aria-label": `About ${input.label}` }, "?");
    help.addEventListener("click", () => help.setAttribute("aria-expanded", !(about.hidden = !about.hidden)));
    about.hidden = true;
    const row = element("div", { class: input.stops.length ? "field slides" : "field", ...(input.when.length ? { "data-when": input.when.join("=") } : {}) },
      element("label", { for: id }, input.label), help, ...control(input), element("p", { class: "wrong", id: `${id}-wrong` }), about);
    if (!groups.has(input.group)) groups.set(input.group, []);
    groups.get(input.group).push(row);
  }
  const isUsed = (title) => inputs().some((one) => one.group === title && text(one) !== one.default);
  box("form", ...[...groups].flatMap(([title, rows]) => title
    ? [element("details", { class: "group", ...(isUsed(title) ? { open: "" } : {}) }, element("summary", {}, title), ...rows)] : rows));
  hideRows();
};
const hideRows = () => {
  const holds = (when) => inputs().some((one) => `${one.name}=${text(one)}` === when);
  for (const row of document.querySelectorAll("[data-when]")) row.hidden = !holds(row.dataset.when);
};
find("form").addEventListener("submit", (event) => event.preventDefault());

// Ask for the answer; while one is awaited, only the last change counts.
const GONE = "The explorer has stopped. Start it again: dpsieve explore";
const ask = async () => {
  if (state.waiting) return void (state.again = true);
  Object.assign(state, { waiting: true, again: false });
  find("results").setAttribute("aria-busy", "true");
  const view = state.view, given = query(true);
  const answer = await fetch(`views/${view}?${given}`).then((got) => got.json(), () => ({ error: GONE }));
  state.waiting = false;
  if (state.again || view !== state.view) return ask();
  if (answer.error) complain(answer);
  else draw(answer);
  find("results").setAttribute("aria-busy", "false");
};
const complain = ({ error, argument }) => {
  const field = argument && find(`in-${argument}`);
  clearWrong();
  find("error").hidden = false;
  box("error", error);
  find("results").classList.add("stale");
  if (!field) return;
  field.setAttribute("aria-invalid", "true");
  box(`in-${argument}-wrong`, error);
  field.closest("details.group")?.setAttribute("open", "");
};
const clearWrong = () => {
  for (const field of document.querySelectorAll("[aria-invalid]")) field.removeAttribute("aria-invalid");
  for (const words of document.querySelectorAll(".wrong")) words.replaceChildren();
};

// Draw an answer.
const draw = (answer) => {
  state.answer = answer;
  clearWrong();
  find("error").hidden = true;
  find("results").classList.remove("stale");
  box("headline", answer.headline);
  box("notes", ...answer.notes.map((note) => element("li", {}, visible(note))));
  box("tiles", ...answer.tiles.map(([name, value, other]) =>
    element("div", { class: "tile" }, element("span", {}, name), element("strong", {}, visible(value)), element("span", {}, other))));
  drawPlots(answer.plots);
  drawFacts(answer.facts);
  find("parts-part").hidden = !answer.parts.length;
  box("not-covered", answer.not_covered);
  box("parts", ...answer.parts.map(({ promise, covers, how }) =>
    element("li", {}, element("strong", {}, promise), element("span", {}, covers), element("span", {}, how))));
  find("table-part").hidden = !answer.table;
  if (answer.table) drawTable(answer.table);
  box("python", answer.python);
  box("command", answer.command);
  find("results").dataset.drawn = ++state.drawn;
};
const figure = () => {
  const parts = { title: element("h2"), plot: element("div", { class: "plot" }), readout: element("p", { class: "readout" }), note: element("p", { class: "small" }) };
  const numbers = element("details", { class: "numbers" }, element("summary", {}, "Points of the plot"));
  numbers.addEventListener("toggle", () => numbers.open && drawNumbers(parts));
  return Object.assign(parts, { numbers, whole: element("figure", {}, parts.title, parts.plot, parts.readout, parts.note, numbers) });
};
const figures = [];
const drawPlots = (plots) => {
  while (figures.length < plots.length) figures.push(figure());
  if (find("plots").children.length !== plots.length) box("plots", ...figures.slice(0, plots.length).map((one) => one.whole));
  plots.forEach((plot, i) => {
    const one = figures[i], last = plot.lines[0], ends = (v) => [number(v[0]), number(v[v.length - 1])].join(" to ");
    box_of(one.title, plot.title);
    box_of(one.note, plot.note ?? "");
    box_of(one.readout);
    linePlot(one.plot, one.readout, { ...plot, label: `${plot.title} ${plot.lines.map((line) => line.name).join(" and ")}: ${plot.yName} against ${plot.xName}, from ${ends(last.x)}.` });
    one.drawn = plot;
    if (one.numbers.open) drawNumbers(one);
  });
};
const box_of = (made, ...inside) => made.replaceChildren(...inside);
const drawNumbers = ({ numbers, drawn }) => {
  const rows = drawn.lines.flatMap(({ name, x, y }) => {
    const step = Math.max(1, Math.floor(x.length / 12));
    return x.map((value, i) => [name, number(value), drawn.percent ? shownShare(y[i]) : number(y[i])]).filter((_, i) => i % step === 0);
  });
  const cells = (kind, row) => element("tr", {}, ...row.map((value) => element(kind, kind === "th" ? { scope: "col" } : {}, value)));
  numbers.querySelector("table")?.remove();
  numbers.append(element("table", {}, element("thead", {}, cells("th", ["line", drawn.xName, drawn.yName])), element("tbody", {}, ...rows.map((row) => cells("td", row)))));
};
const drawFacts = (facts) => {
  const [head = [], ...rows] = facts;
  find("facts-part").hidden = !rows.length;
  box("facts", element("thead", {}, element("tr", {}, ...head.map((name) => name ? element("th", { scope: "col" }, visible(name)) : element("td")))),
    element("tbody", {}, ...rows.map(([name, ...values]) => element("tr", {}, element("th", { scope: "row" }, name), ...values.map((value) => element("td", {}, visible(value)))))));
};
const drawTable = (table) => {
  box("table-title", visible(table.title));
  showTable(find, table, table.order);
  find("rank-part").hidden = !table.ranks?.length;
  if (table.ranks?.length) rankPlot(find("rank-plot"), find("rank-readout"), table);
};

// Plots are drawn again where there is more or less room; what is copied is said on the button.
let width = 0;
new ResizeObserver(([entry]) => {
  const now = Math.round(entry.contentRect.width);
  if (now !== width && state.answer) {
    drawPlots(state.answer.plots);
    if (state.answer.table?.ranks?.length) rankPlot(find("rank-plot"), find("rank-readout"), state.answer.table);
  }
  width = now;
}).observe(find("results"));
const copy = async (button, words) => {
  const before = button.textContent;
  await navigator.clipboard.writeText(words).then(() => box_of(button, "Copied"), () => box_of(button, "Not copied"));
  setTimeout(() => box_of(button, before), 1500);
};
for (const button of document.querySelectorAll("[data-copy]")) button.addEventListener("click", () => copy(button, find(button.dataset.copy).textContent));
find("link").addEventListener("click", () => copy(find("link"), location.href));
find("skip").addEventListener("click", (event) => {
  event.preventDefault();
  find("results").focus();
});
window.addEventListener("hashchange", open);
open();

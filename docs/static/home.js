// The plot of the first page. REPORTING holds numbers that docs/plots.py computed with the library.
"use strict";
document.addEventListener("DOMContentLoaded", () => {
  const place = document.getElementById("reporting");
  if (!place) return;
  const svg = place.querySelector("svg");
  const width = Math.max(300, Math.min(svg.clientWidth, 760)), height = 240, left = 46, right = 12, top = 12, bottom = 40;
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  const { epsilons, units, chances } = REPORTING;
  const control = (name) => place.querySelector(`[name="${name}"]`);
  const output = place.querySelector("output");
  const largest = Math.log10(units[units.length - 1]);
  const x = (count) => left + (Math.log10(count) / largest) * (width - left - right);
  const y = (chance) => top + (1 - chance / 1000) * (height - top - bottom);

  const draw = (kind, attributes, text) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", kind);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    if (text) made.textContent = text;
    return svg.appendChild(made);
  };
  for (const percent of [0, 25, 50, 75, 100]) {
    draw("line", { class: "grid", x1: left, x2: width - right, y1: y(percent * 10), y2: y(percent * 10) });
    draw("text", { x: left - 6, y: y(percent * 10) + 4, "text-anchor": "end" }, `${percent} %`);
  }
  for (const count of [1, 10, 100, 1000, 10000])
    draw("text", { x: x(count), y: height - bottom + 18, "text-anchor": count === 10000 ? "end" : "middle" }, count.toLocaleString("en"));
  draw("text", { x: (left + width) / 2, y: height - 4, "text-anchor": "middle" }, "users with the key");
  draw("line", { class: "axis", x1: left, x2: width - right, y1: y(0), y2: y(0) });
  const marker = draw("line", { class: "marker", y1: y(0) });
  const curve = draw("polyline", { class: "curve" });
  const dot = draw("circle", { class: "dot", r: 5 });

  const say = (chance) => (chance < 1 ? "less than 0.1 %" : chance > 999 ? "more than 99.9 %" : `${(chance / 10).toFixed(1)} %`);
  const update = () => {
    const epsilon = epsilons[control("epsilon").value], count = units[control("units").value], bound = control("bound").value;
    const row = chances[bound][control("epsilon").value], chance = row[control("units").value];
    curve.setAttribute("points", units.map((unit, at) => `${x(unit).toFixed(1)},${y(row[at]).toFixed(1)}`).join(" "));
    for (const name of ["x1", "x2"]) marker.setAttribute(name, x(count));
    marker.setAttribute("y2", y(chance));
    dot.setAttribute("cx", x(count));
    dot.setAttribute("cy", y(chance));
    place.querySelector("[data-for=epsilon]").textContent = epsilon;
    place.querySelector("[data-for=units]").textContent = count.toLocaleString("en");
    control("epsilon").setAttribute("aria-valuetext", `epsilon ${epsilon}`);
    control("units").setAttribute("aria-valuetext", `${count} users`);
    output.textContent = `At epsilon ${epsilon}, delta 1e-8, a key that ${count.toLocaleString("en")} ${count === 1 ? "user has" : "users have"} is released with probability ${say(chance)}.`;
  };
  control("epsilon").max = epsilons.length - 1;
  control("epsilon").value = epsilons.indexOf(1);
  control("units").max = units.length - 1;
  control("units").value = units.indexOf(19);
  for (const name of ["epsilon", "units", "bound"]) control(name).addEventListener("input", update);
  update();
});

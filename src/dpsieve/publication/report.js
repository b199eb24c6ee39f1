const data = JSON.parse(document.getElementById("data").textContent);
const find = (id) => document.getElementById(id);
showTable(find, data);
const reportingPlot = (box, readout) => {
  const { frequencies, reported } = data.reporting;
  linePlot(box, readout, {
    label: `Probability of being reported by frequency. ${find("reporting").nextElementSibling.textContent}`,
    xName: "true frequency of the key", xWord: "Frequency", yName: "probability of being reported", percent: true,
    lines: [{ name: "this release", x: frequencies, y: reported }],
  });
};
const plots = [[data.ranks.length, "rank", (...places) => rankPlot(...places, data)], [data.reporting, "reporting", reportingPlot]];
for (const [wanted, name, make] of plots) {
  if (!wanted) continue;
  const box = find(`${name}-plot`);
  let width = -1;
  make(box, find(`${name}-readout`));
  new ResizeObserver(([entry]) => {
    const now = Math.round(entry.contentRect.width);
    if (width >= 0 && now !== width) make(box, find(`${name}-readout`));
    width = now;
  }).observe(box);
}

// Summaries of search results are fetched from their pages, which browsers refuse for pages opened from disk.
"use strict";
if (location.protocol === "file:") DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;

// A button on each block of code copies it; of a terminal, the commands without prompts and output.
const typed = (box) => {
  const text = box.querySelector("pre").innerText;
  if (!box.parentElement.className.includes("highlight-console")) return text;
  let continues = false;
  const commands = text.split("\n").filter((line) => {
    const keep = continues || line.startsWith("$ ");
    continues = keep && line.endsWith("\\");
    return keep;
  });
  return commands.map((line) => line.replace(/^\$ /, "")).join("\n");
};
document.addEventListener("DOMContentLoaded", () => {
  for (const box of document.querySelectorAll("div.highlight")) {
    const button = Object.assign(document.createElement("button"), { type: "button", className: "copy", textContent: "Copy" });
    button.setAttribute("aria-label", "Copy this code");
    button.addEventListener("click", async () => {
      const done = await navigator.clipboard?.writeText(typed(box)).then(() => true, () => false);
      if (!done) getSelection().selectAllChildren(box.querySelector("pre"));
      button.textContent = done ? "Copied" : "Selected";
      setTimeout(() => { button.textContent = "Copy"; }, 1500);
    });
    box.append(button);
  }
});

// A hovered row of latencies fades the other lines of its drawing.
for (const table of document.querySelectorAll("table.latencies")) {
  const chart = table.nextElementSibling;
  if (!chart) continue;
  for (const row of table.querySelectorAll("tr[data-series]")) {
    const show = (only) => {
      for (const line of chart.querySelectorAll(".series"))
        line.classList.toggle("faded", only && line.dataset.series !== row.dataset.series);
    };
    row.addEventListener("mouseenter", () => show(true));
    row.addEventListener("mouseleave", () => show(false));
  }
}
// A selected spike opens its parts and their list.
const open = () => {
  const chosen = location.hash.startsWith("#spike-") && document.getElementById(location.hash.slice(1));
  for (let of = chosen; of; of = of.parentElement) if (of.tagName === "DETAILS") of.open = true;
  if (chosen) chosen.scrollIntoView({ block: "center" });
};
window.addEventListener("hashchange", open);
open();
document.getElementById("theme").addEventListener("click", () => {
  const root = document.documentElement;
  const dark = getComputedStyle(root).colorScheme.includes("dark");
  root.dataset.theme = dark ? "light" : "dark";
});

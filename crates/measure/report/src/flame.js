// Zooms into a clicked function, moves by the arrow keys, searches names.
{
  const here = document.currentScript;
  const flame = here ? here.closest("svg") : document.documentElement;
  const width = 1200, letter = 6.6;
  const frames = [...flame.querySelectorAll(".f")].map((g) => ({ g, x: +g.dataset.x, w: +g.dataset.w, d: +g.dataset.d,
    rect: g.querySelector("rect"), text: g.querySelector("text"), title: g.querySelector("title").textContent }));
  const name = (frame) => frame.title.slice(0, frame.title.lastIndexOf(": "));
  const status = flame.querySelector(".status"), found = flame.querySelector(".found");
  let wide = frames[0], sought = "";
  const holds = (outer, inner) => outer.x <= inner.x + 1e-3 && inner.x + inner.w <= outer.x + outer.w + 1e-3;
  const show = (of) => {
    if (!of) return;
    wide = of;
    for (const frame of frames) {
      const below = frame.d < of.d && holds(frame, of);
      const inside = frame.d >= of.d && holds(of, frame);
      frame.g.classList.toggle("away", !below && !inside);
      frame.g.classList.toggle("below", below);
      if (!below && !inside) continue;
      const x = below ? 0 : (frame.x - of.x) / of.w * width, w = below ? width : frame.w / of.w * width;
      frame.rect.setAttribute("x", x); frame.rect.setAttribute("width", w); frame.text.setAttribute("x", x + 2);
      const fits = Math.floor((w - 4) / letter), text = name(frame);
      frame.text.textContent = text.length <= fits ? text : fits < 3 ? "" : text.slice(0, fits - 1) + "…";
    }
  };
  const seek = (text) => {
    sought = text;
    let hit;
    try { hit = text && new RegExp(text, "i"); } catch { found.textContent = "invalid expression: " + text; return; }
    let sum = 0, end = -1;
    for (const frame of frames) {
      const is = hit && frame.d > 0 && hit.test(name(frame));
      frame.g.classList.toggle("hit", !!is);
      // Outer functions come before inner ones: functions inside a counted one are not counted again.
      if (is && frame.x >= end - 1e-3) { sum += frame.w; end = frame.x + frame.w; }
    }
    found.textContent = hit ? text + ": " + (sum / width * 100).toFixed(2) + " %" : "";
  };
  const near = (of, key) => {
    const shown = frames.filter((frame) => !frame.g.classList.contains("away"));
    if (key === "ArrowUp") return shown.filter((f) => f.d === of.d + 1 && holds(of, f)).sort((a, b) => b.w - a.w)[0];
    if (key === "ArrowDown") return shown.find((f) => f.d === of.d - 1 && holds(f, of));
    const row = shown.filter((f) => f.d === of.d).sort((a, b) => a.x - b.x);
    return row[row.indexOf(of) + (key === "ArrowRight" ? 1 : -1)];
  };
  for (const frame of frames) {
    frame.g.addEventListener("click", () => show(frame));
    for (const kind of ["mouseenter", "focus"]) frame.g.addEventListener(kind, () => { status.textContent = frame.title; });
    frame.g.addEventListener("keydown", (event) => {
      if (event.key === "Enter" || event.key === " ") { show(frame); event.preventDefault(); }
      else if (event.key.startsWith("Arrow")) { const to = near(frame, event.key); if (to) to.g.focus(); event.preventDefault(); }
    });
  }
  document.addEventListener("keydown", (event) => {
    // If the page has several drawings, keys go to the focused one, or to the first.
    const at = document.activeElement && document.activeElement.closest(".flame");
    if (event.target.tagName === "INPUT" || (at || document.querySelector(".flame")) !== flame) return;
    if (event.key === "Escape") { seek(""); show(frames[0]); }
    else if (event.key === "/") { const text = prompt("Search functions (regular expression):", sought); if (text !== null) seek(text); event.preventDefault(); }
    else if (event.key.startsWith("Arrow") && !flame.contains(document.activeElement)) frames[0].g.focus();
  });
}

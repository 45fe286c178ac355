// Small helpers. Elements are built without parsing markup, so no name of a process can become code.

/** Elements with listeners. Another element cannot take their place. */
const listening = new WeakSet();

/** An element: el("td", {class: "number"}, "3", other). Functions become listeners. */
export function el(name, attributes = {}, ...inside) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (typeof value === "function") { made.addEventListener(key, value); listening.add(made); }
    else if (value === true) made.setAttribute(key, "");
    else if (value !== false && value != null) made.setAttribute(key, value);
  }
  made.append(...inside.filter((one) => one != null));
  return made;
}

/** Class of a column: `number` is right-aligned, `acts` is visible to operators only. */
const kind = (head) => (head?.number ? "number" : head?.acts ? "acts" : null);

/** A table that scrolls if it is too wide. `fill(rows)` takes arrays of cells or row elements. */
export function table(caption, heads) {
  const body = el("tbody");
  const head = el("tr", {}, ...heads.map((one) => el("th", { scope: "col", class: kind(one) }, one.text ?? one)));
  const whole = el("table", {}, el("caption", {}, caption), el("thead", {}, head), body);
  const frame = el("div", { class: "scroll", role: "region", "aria-label": caption, tabindex: "0" }, whole);
  const fill = (rows) => renew(body, rows.map((row) => (row instanceof Element ? row : tr(row, heads))));
  return { frame, body, fill };
}

/**
 * Shows these children in place of the present ones. What shows the same already stays, so that the keyboard's focus, a selection and a click survive
 * an update. A child with `data-key` keeps its element when it moves.
 */
export function renew(parent, children) {
  const focus = document.activeElement;
  arrange(parent, children);
  // An element that moves loses the focus.
  if (focus !== document.activeElement && focus?.isConnected) focus.focus();
}

function arrange(parent, children) {
  const wanted = new Set(children.map((child) => child.dataset?.key)), keyed = new Map();
  for (const old of [...parent.children].filter((one) => one.dataset.key)) wanted.has(old.dataset.key) ? keyed.set(old.dataset.key, old) : old.remove();
  let next = parent.firstChild;
  for (const child of children) {
    const key = child.dataset?.key, same = key ? keyed.get(key) : next?.dataset?.key ? null : next;
    keyed.delete(key);
    const kept = child.parentNode === parent ? child : same && isAlike(same, child) ? same : null;
    if (kept && kept === next) next = next.nextSibling;
    else parent.insertBefore(kept ?? child, next);
    if (kept && kept !== child) update(kept, child);
  }
  while (next) {
    const gone = next;
    next = gone.nextSibling;
    gone.remove();
  }
}

/** Whether an element can become the other. One with a listener can if its key names it: the listener stays. */
function isAlike(old, fresh) {
  return old.nodeName === fresh.nodeName && old.nodeName !== "CANVAS" && (fresh.dataset?.key || !(listening.has(old) || listening.has(fresh)));
}

function update(old, fresh) {
  if (old instanceof Text) return say(old, fresh.textContent);
  for (const { name } of [...old.attributes]) if (!fresh.hasAttribute(name)) old.removeAttribute(name);
  for (const { name, value } of fresh.attributes) {
    if (old.getAttribute(name) === value) continue;
    // The page forbids inline style, which this attribute counts as; the property does not.
    if (name === "style") old.style.cssText = value;
    else old.setAttribute(name, value);
  }
  arrange(old, [...fresh.childNodes]);
}

/** A row. Its first cell is its header. */
export function tr(cells, heads = [], attributes = {}) {
  const cell = (one, at) => {
    const attributes = { class: kind(heads[at]) };
    if (at === 0) return el("th", { scope: "row", ...attributes }, one);
    return one instanceof Element && one.tagName === "TD" ? one : el("td", attributes, one ?? "");
  };
  return el("tr", attributes, ...cells.map(cell));
}

/** Formats nanoseconds with three digits and a unit. */
export function time(ns) {
  if (ns == null) return "-";
  const units = [[1, "ns"], [1e3, "µs"], [1e6, "ms"], [1e9, "s"]];
  let [size, unit] = units[0];
  // The unit is chosen after rounding: 999.9 µs is 1.00 ms.
  for (const [next, name] of units) if (Math.abs(ns) >= 0.9995 * next) [size, unit] = [next, name];
  if (size === 1e9 && Math.abs(ns) >= 60e9) {
    const s = Math.round(ns / 1e9);
    return s >= 3600 ? `${Math.floor(s / 3600)}h${String(Math.floor(s / 60) % 60).padStart(2, "0")}m` : `${Math.floor(s / 60)}m${String(s % 60).padStart(2, "0")}s`;
  }
  const value = ns / size;
  return `${value.toFixed(size === 1 || value >= 100 ? 0 : value >= 10 ? 1 : 2)} ${unit}`;
}

export function bytes(count) {
  if (count == null) return "-";
  return count >= 2 ** 30 ? `${(count / 2 ** 30).toFixed(2)} GiB` : `${(count / 2 ** 20).toFixed(1)} MiB`;
}

/** Saves a file through the browser. */
export function download(name, parts) {
  const address = URL.createObjectURL(new Blob(parts));
  el("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

/** A count with its noun. */
export function counted(count, one) {
  return `${count} ${one}${count === 1 ? "" : "s"}`;
}

/** Replaces the text only if it differs, so that a screen reader does not repeat it. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Text with its commands, which are between backticks, as code elements. */
export function coded(text) {
  return text.split("`").map((part, at) => (at % 2 ? el("code", {}, part) : part));
}

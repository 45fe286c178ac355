// Ctrl-K goes to any panel, process, alarm or signal by a part of its name. `?` lists the keys.
import { counted, el, say } from "./dom.js";
import { address, step } from "./frame.js";

const SHOWN_MAX = 12;
const KEYS = [["Ctrl K or /", "go to a page, process, alarm or signal"], ["[ and ]", "previous and next page"], ["?", "this list"], ["Esc", "close"], ["Tab, Enter", "next control, use it"]];

let sources, found = [], chosen = 0, searches = 0;
const dialog = document.getElementById("palette"), input = document.getElementById("palette-input");
const list = document.getElementById("palette-list"), count = document.getElementById("palette-count"), keys = document.getElementById("keys");

/** `given.things()` lists the targets: kind, name, panel. `given.signals(text)` returns a promise of signal names. */
export function setUp(given) {
  sources = given;
  document.getElementById("goto").addEventListener("click", open);
  document.getElementById("keys-list").append(...KEYS.map(([key, what]) => el("tr", {}, el("th", { scope: "row" }, el("kbd", {}, key)), el("td", {}, what))));
  input.addEventListener("input", look);
  input.addEventListener("keydown", move);
  dialog.querySelector("form").addEventListener("submit", (event) => { event.preventDefault(); take(found[chosen]); });
  document.addEventListener("keydown", key);
}

function key(event) {
  if (event.defaultPrevented || event.isComposing) return;
  const isCommand = (event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k";
  const isTyping = event.target.closest("input, select, textarea, dialog, [role=group][tabindex]");
  const act = isCommand ? open : isTyping || event.ctrlKey || event.altKey || event.metaKey ? null : { "/": open, "?": () => keys.showModal(), "[": () => step(-1), "]": () => step(1) }[event.key];
  if (!act || document.querySelector("dialog[open]")) return;
  event.preventDefault();
  act();
}

function open() {
  input.value = "";
  dialog.showModal();
  input.focus();
  look();
}

async function look() {
  const text = input.value.trim().toLowerCase(), own = ++searches;
  const known = sources.things().filter(({ kind, name }) => `${kind} ${name}`.toLowerCase().includes(text));
  show(known);
  if (text.length < 2) return;
  const names = await sources.signals(input.value.trim()).catch(() => []);
  if (own !== searches) return;
  const isNew = (name) => !known.some((one) => one.kind === "signal" && one.name === name);
  show([...known, ...names.filter(isNew).map((name) => ({ kind: "signal", name, panel: "signals", thing: name }))]);
}

function show(all) {
  found = all.slice(0, SHOWN_MAX);
  chosen = 0;
  list.replaceChildren(...found.map(({ kind, name }, at) => el("li", { role: "option", id: `palette-${at}`, click: () => take(found[at]) },
    el("span", {}, name), el("span", { class: "faint" }, kind))));
  say(count, all.length > SHOWN_MAX ? `${counted(all.length, "result")}, the first ${SHOWN_MAX} shown` : counted(all.length, "result"));
  mark();
}

function mark() {
  [...list.children].forEach((one, at) => one.setAttribute("aria-selected", String(at === chosen)));
  input.setAttribute("aria-activedescendant", found.length ? `palette-${chosen}` : "");
  list.children[chosen]?.scrollIntoView({ block: "nearest" });
}

function move(event) {
  const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (!by || !found.length) return;
  event.preventDefault();
  chosen = (chosen + by + found.length) % found.length;
  mark();
}

function take(one) {
  if (!one) return;
  dialog.close();
  location.hash = address(one.panel, one.thing);
  document.getElementById("panels").focus({ preventScroll: true });
}

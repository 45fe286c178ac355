// Settings: saves the values of the channels of a set, compares them with the current values, and restores them.
import { counted, el, say, table, tr } from "../dom.js";

const FILES = ["saved", "by", "note", { text: "channels", number: true }, "do"];
const ROWS = ["channel", "saved", "now", "restore"];

let tahti, choice, note, save, tolerance, files, rows, outcome, compared, restore;
let sets = [], shown = null;

const chosen = () => sets.find(({ set }) => set === choice.value);

/** Time at which a file was saved, in the time zone of this machine. */
function when({ file, at_s: at }) {
  return at == null ? file : new Date(at * 1000).toLocaleString("sv");
}

async function ask(act) {
  say(outcome, "asking");
  try {
    const answer = await tahti.ask({ do: "settings", act });
    say(outcome, "");
    return answer;
  } catch (error) {
    say(outcome, error.message);
    return null;
  }
}

async function list() {
  const answer = await ask({ what: "list" });
  if (!answer) return;
  const before = choice.value;
  sets = answer.sets;
  choice.replaceChildren(...sets.map(({ set }) => el("option", { value: set }, set)));
  if (sets.some(({ set }) => set === before)) choice.value = before;
  choose();
  if (!sets.length) say(outcome, "the folder has no set: a file NAME.req with a channel in each line makes one");
}

function choose() {
  const set = chosen();
  save.disabled = !set || set.error != null || tahti.role !== "operator";
  if (set?.error != null) say(outcome, set.error);
  files.fill((set?.files ?? []).map((entry) => {
    const compare = el("button", { type: "button", "aria-label": `compare ${entry.file}`, click: () => look(entry) }, "compare");
    const count = entry.missing ? `${entry.channels}, ${entry.missing} not read` : String(entry.channels);
    return tr([when(entry), entry.by ?? "", entry.note ?? "", count, el("span", {}, compare)], FILES, { "data-file": entry.file });
  }));
}

async function look(entry) {
  const set = choice.value;
  const answer = await ask({ what: "compare", set, file: entry.file, tolerance: tolerance.value.trim() || "0" });
  if (!answer) return;
  shown = { set, file: entry.file };
  const may = tahti.role === "operator";
  rows.frame.hidden = !answer.rows.length;
  files.body.querySelectorAll("tr").forEach((row) => row.classList.toggle("marked", row.dataset.file === entry.file));
  rows.fill(answer.rows.map(({ name, saved, now, why }) => {
    // A channel that could not be read, then or now, cannot be restored.
    const box = saved != null && now != null ? el("input", { type: "checkbox", checked: true, value: name, "aria-label": `restore ${name}`, disabled: !may }) : null;
    return tr([name, saved ?? "", el("span", {}, now ?? "", why ? el("span", { class: "doubt" }, ` ${why}`) : null), el("span", {}, box)], ROWS, { "data-channel": name });
  }));
  const more = answer.differ > answer.rows.length ? `; the first ${answer.rows.length} are shown` : "";
  say(compared, `${set}, ${when(entry)}: ${answer.equal} equal, ${answer.differ} not${more}`);
  restore.disabled = !may || !rows.body.querySelector("input");
}

async function back() {
  const names = [...rows.body.querySelectorAll("input:checked")].map((box) => box.value);
  if (!names.length) return say(outcome, "no channel is chosen");
  if (!await tahti.confirm(`Write ${counted(names.length, "channel")} of ${shown.set} back? Where one cannot be written, none is. The log will name you.`, "restore")) return;
  const answer = await ask({ what: "restore", ...shown, names });
  if (!answer) return;
  await look(chosen().files.find(({ file }) => file === shown.file));
  say(outcome, `${counted(answer.restored, "channel")} restored`);
}

async function keep(event) {
  event.preventDefault();
  const answer = await ask({ what: "save", set: choice.value, note: note.value });
  if (!answer) return;
  note.value = "";
  await list();
  const missing = answer.missing.length ? `; not read: ${answer.missing.join(", ")}` : "";
  say(outcome, `${answer.file}: ${answer.channels - answer.missing.length} of ${answer.channels} channels saved${missing}`);
}

export default {
  id: "settings",
  title: "Settings",
  topics: [],
  build(section, given) {
    tahti = given;
    choice = el("select", { id: "settings-set", change: choose });
    note = el("input", { id: "settings-note", autocomplete: "off", size: "30", maxlength: "200" });
    save = el("button", { disabled: true }, "save");
    tolerance = el("input", { id: "settings-tolerance", autocomplete: "off", size: "8", value: "0" });
    files = table("Saved settings, the newest first", FILES);
    rows = table("Differences from the saved settings", ROWS);
    outcome = el("p", { role: "status", id: "settings-outcome" });
    compared = el("p", { id: "settings-compared", role: "status" }, "Compare a saved file with the present values of its channels.");
    rows.frame.hidden = true;
    restore = el("button", { type: "button", disabled: true, click: back }, "restore selected");
    for (const { frame } of [files, rows]) frame.classList.add("as-cards");
    const field = (label, input) => el("span", { class: "field" }, el("label", { for: input.id }, label), " ", input);
    section.append(el("div", { class: "cards" },
      el("div", { class: "card half" }, el("h3", {}, "Saved settings"),
        el("form", { submit: keep }, field("Set", choice), field("Note", note), save, el("button", { type: "button", click: list }, "refresh")), outcome, files.frame),
      el("div", { class: "card half" }, el("h3", {}, "Differences from now"), el("div", { class: "row" }, field("Equal within", tolerance), restore), compared, rows.frame)));
  },
  connected() {
    list();
  },
  show() {},
};

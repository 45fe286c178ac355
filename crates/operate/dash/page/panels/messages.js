// The message console: a line out, its reply in; objects are completed from what is served.
import { el } from "../dom.js";

const LINES_MAX = 200;
const VERBS = ["get", "list", "put", "set", "call"];

let tahti, lines, objects, input;
const said = [];
let at = 0;

function print(text, kind) {
  lines.append(el("span", { class: kind }, `${text}\n`));
  while (lines.childElementCount > LINES_MAX) lines.firstElementChild.remove();
  lines.scrollTop = lines.scrollHeight;
}

async function send(event) {
  event.preventDefault();
  const line = input.value.trim();
  if (!line) return;
  said.push(line);
  at = said.length;
  input.value = "";
  try {
    const { text } = await tahti.ask({ do: "message", line });
    print(`${line}  ${text}`, "");
  } catch (error) {
    print(`${line}  ${error.message}`, "bad");
  }
}

function earlier(event) {
  const step = { ArrowUp: -1, ArrowDown: 1 }[event.key];
  if (!step || !said.length || event.target.value.includes("/")  && at === said.length) return;
  at = Math.max(0, Math.min(said.length, at + step));
  input.value = said[at] ?? "";
  event.preventDefault();
}

async function complete() {
  const [verb, object] = input.value.split("/");
  if (object == null) return objects.replaceChildren(...VERBS.map((one) => el("option", { value: `${one}/` })));
  try {
    const { found } = await tahti.ask({ do: "objects", pattern: `${object}*` });
    objects.replaceChildren(...found.slice(0, 100).map((one) => el("option", { value: `${verb}/${one}/` })));
  } catch {
    objects.replaceChildren();
  }
}

export default {
  id: "messages",
  title: "Messages",
  topics: [],
  build(section, given) {
    tahti = given;
    objects = el("datalist", { id: "message-objects" });
    input = el("input", { id: "message-line", list: "message-objects", autocomplete: "off", spellcheck: "false", size: "50", placeholder: "get/sr_mag_ps_b/current_adc", input: complete, keydown: earlier });
    lines = el("pre", { role: "log", "aria-label": "Messages and their replies", tabindex: "0" });
    section.append(el("form", { submit: send }, el("label", { for: "message-line" }, "verb/object/complement"), input, objects, el("button", {}, "send")), lines);
  },
  show() {},
};

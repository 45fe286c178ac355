// Goes through the panels as a viewer, then acts on processes, signals and alarms as an operator.
import assert from "node:assert/strict";
import { accessible, go, open, patience, plant, press, setSignal, shot } from "./browser.mjs";

async function looks() {
  const { page, wrong, context } = await open(plant.viewer);
  await go(page, "processes");
  await page.locator("tr[data-process=loop] >> text=running").waitFor(patience);
  assert.ok(!page.url().includes("token"), "the token leaves the address bar");
  assert.match(await page.title(), /^p /);
  const buttons = page.getByRole("region", { name: "Processes of the plant" }).getByRole("columnheader", { name: "do", exact: true });
  assert.equal(await page.locator("tr[data-process] button").count() + await buttons.count(), 0, "viewers have no buttons, and no column for them");
  await page.locator("#standing", { hasText: "you are a viewer" }).waitFor(patience);
  await page.locator("body:not(.stale)").waitFor(patience);
  // The verdict with its first reason: in the header, the tab's title and its icon.
  const verdict = page.locator("#verdict", { hasText: /^(○ good|▲ degraded: .+|◆ failed: .+)$/ });
  await verdict.waitFor(patience);
  // Read in one step, because the verdict may change.
  const [outcome, icon, title] = await page.evaluate(() => [
    document.getElementById("verdict").dataset.outcome, document.getElementById("icon").getAttribute("href"), document.title,
  ]);
  assert.equal(icon, outcome === "good" ? "icon.svg" : `icon-${outcome}.svg`);
  assert.equal(title.includes(outcome), outcome !== "good");
  // State, class, CPUs, processor time, memory, missed deadlines, restarts.
  await page.locator("tr[data-process=loop]").filter({ hasText: /^loop\d+runningother[\d,-]+\d+\.\d %\d+\.\d MiB\d+0log$/ }).waitFor(patience);
  await page.getByLabel("show threads").check();
  await page.locator("tr.thread").filter({ hasText: /^llrf\d+threadother/ }).first().waitFor(patience);

  await go(page, "shield");
  const shield = page.getByRole("region", { name: "What reached each CPU" });
  // Without root, the kernel does not show it. The panel then says so.
  await shield.locator("tbody tr").first().or(page.getByText("what reaches the CPUs is not known")).first().waitFor({ state: "attached", ...patience });
  if (process.getuid() === 0) {
    assert.match(await shield.locator("tbody tr").first().textContent(), /^0housekeeping\d/);
    await page.locator("[data-cpu='0'] .ticks span").first().waitFor(patience);
    const times = await page.locator("[data-cpu]").evaluateAll((all) => all.map((cpu) => [...cpu.querySelectorAll(".ticks span")].map((tick) => tick.textContent)));
    assert.ok(times.flat().every((time) => /^\d\d:\d\d(:\d\d)?$/.test(time)), `${times}`);
    assert.ok(times.every((one) => one.join() === times[0].join()), `the lanes of all CPUs have one time axis: ${times}`);
  }

  // The heat map of the last minutes, and the histogram since the start.
  await go(page, "latency");
  await page.locator("[data-loop=loop] canvas").nth(1).waitFor(patience);
  await page.waitForFunction(() => [...document.querySelectorAll("[data-loop=loop] canvas")].every((canvas) => {
    const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
    return pixels.some((value) => value > 0);
  }), null, patience);
  await page.locator("[data-loop=loop] canvas.heat[aria-label*='Maximum: '][aria-label$='s.']").waitFor(patience);
  const cycles = () => page.locator("section[aria-labelledby=latency-title] tbody tr td").first().textContent();
  const before = Number(await cycles());
  await page.waitForFunction((old) => Number(document.querySelector("section[aria-labelledby=latency-title] tbody tr td").textContent) > old, before, patience);
  await page.getByText("this plant has no flight recorder").waitFor(patience);
  await shot(page, "latency");
  await go(page, "frames");
  const line = page.locator("svg[data-line]");
  await line.waitFor(patience);
  const told = await line.getAttribute("aria-label");
  assert.ok(told.endsWith(`, 40.0 ms: ${plant.sensor} in each minor; ${plant.filter} in minors 1, 3`), told);
  await page.waitForFunction(() => document.querySelectorAll("svg[data-line] rect[fill-opacity='1']").length === 6, null, patience);
  await page.getByText(/minors, \d+ lost/).waitFor(patience);
  await shot(page, "frames", page.locator("section[aria-labelledby=frames-title]"));

  assert.deepEqual(wrong, []);
  await context.close();
}

/** Alarms, signals and messages, as far as viewers may use them. */
async function asks() {
  const described = [];
  const listen = async (page) => page.on("websocket", (socket) => socket.on("framesent", ({ payload }) => { if (String(payload).includes('"describe"')) described.push(payload); }));
  const { page, wrong, context } = await open(plant.viewer, {}, listen);
  await go(page, "alarms");
  const alarm = page.locator("tr[data-alarm$='/RF/X:TEMP']");
  await alarm.getByText("not acknowledged").waitFor(patience);
  assert.match(await alarm.textContent(), /MAJOR.*53.*HIHI.*Cooling water.*Pump: switch to pump 2/);
  const buttons = page.getByRole("region", { name: "Alarms, the worst first" }).getByRole("columnheader", { name: "do", exact: true });
  assert.equal(await page.locator("tr[data-alarm] button").count() + await buttons.count(), 0, "viewers have no buttons, and no column for them");
  await page.getByLabel("Only alarms with").fill("no such alarm");
  await alarm.waitFor({ state: "hidden", ...patience });
  await page.getByLabel("Only alarms with").fill("cooling");
  await alarm.waitFor(patience);
  // An area of the tree has an address, and the figures of the last day come from the journal.
  await page.getByRole("navigation", { name: "Areas with alarms" }).getByRole("link", { name: /^RF/ }).click();
  assert.match(decodeURIComponent(new URL(page.url()).hash), /^#\/alarms\/\/.*\/RF$/);
  await page.waitForFunction(() => [...document.querySelectorAll("tr[data-alarm]")].every((row) => row.dataset.alarm.includes("/RF/")), null, patience);
  await page.getByRole("link", { name: "all areas" }).click();
  await page.locator("tr[data-figure='most in ten minutes']", { hasText: /\d/ }).waitFor(patience);
  await shot(page, "alarms", page.locator("section[aria-labelledby=alarms-title]"));

  await accessible(page, "alarms of a viewer");
  await go(page, "signals");
  // By keyboard alone: to the name, a signal, Enter.
  await page.getByLabel("Name", { exact: true }).focus();
  await page.keyboard.type("X:COUNT");
  await page.keyboard.press("Enter");
  const row = page.locator("tr[data-signal='X:COUNT']");
  await row.getByText("connected", { exact: true }).waitFor(patience);
  await page.waitForFunction(() => /\d+ turns/.test(document.querySelector("tr[data-signal='X:COUNT'] td").textContent), null, patience);
  await page.locator(".u-over").first().waitFor(patience);
  await row.getByRole("button", { name: "describe X:COUNT" }).click();
  // The severity of a number stays after the message with its unit.
  await page.getByLabel("Name", { exact: true }).fill("X:TEMP");
  await page.keyboard.press("Enter");
  const hot = page.locator("tr[data-signal='X:TEMP']");
  await hot.getByText("HIHI 20").waitFor(patience);
  await hot.getByText("◆ MAJOR").waitFor(patience);
  await page.locator("[data-about='X:COUNT']", { hasText: /typedouble.*unitsturns/ }).waitFor(patience);
  await page.getByLabel("Name", { exact: true }).pressSequentially("X:CO");
  await page.locator("#signal-names option[value='X:COUNT']").waitFor({ state: "attached", ...patience });
  assert.equal(described.length, 3, "each signal once, and the button");
  await page.getByLabel("Name", { exact: true }).fill("");

  await shot(page, "signals", page.locator("section[aria-labelledby=signals-title]"));
  await accessible(page, "signals");
  await go(page, "messages");
  await page.getByLabel("verb/object/complement").fill("get/absent/x");
  await page.keyboard.press("Enter");
  await page.locator("[role=log] .bad").waitFor(patience);
  await page.getByLabel("verb/object/complement").fill("put/absent/1A");
  await page.keyboard.press("Enter");
  await page.locator("[role=log]", { hasText: "viewers may only read" }).waitFor(patience);

  // From a process to its log. The filter of processes excludes the supervisor, and text excludes all lines.
  await go(page, "processes");
  await page.getByRole("link", { name: "log of loop", exact: true }).click();
  const lines = page.getByRole("region", { name: "Log lines, the newest last" }).locator(".line");
  await lines.filter({ hasText: "armed:" }).first().waitFor(patience);
  assert.deepEqual([...new Set(await lines.locator("b").allTextContents())], ["loop"]);
  await page.getByLabel("Process", { exact: true }).selectOption("*");
  await lines.filter({ has: page.getByText("supervisor", { exact: true }) }).first().waitFor(patience);
  await shot(page, "logs");
  await page.getByLabel("Text", { exact: true }).fill("no such line");
  await page.getByText("no line fits").waitFor(patience);
  await page.getByLabel("Text", { exact: true }).fill("");

  await go(page, "processes");
  await page.getByLabel("show threads").check();
  await page.locator("tr.thread").first().waitFor(patience);
  await accessible(page, "processes");
  for (const panel of ["overview", "latency", "shield", "frames", "scope", "settings", "messages", "logs"]) {
    await go(page, panel);
    await accessible(page, panel);
  }
  assert.deepEqual(wrong, []);
  await context.close();
}

async function acts() {
  const { page, wrong, context } = await open(plant.operator);
  await go(page, "processes");
  const row = page.locator("tr[data-process=steady]");
  await row.getByText("running", { exact: true }).waitFor(patience);
  const stop = row.getByRole("button", { name: "stop steady" });
  await press(page, stop);
  await page.getByRole("dialog").getByText("stop process steady?").waitFor(patience);
  await accessible(page, "dialog");
  // The dialog's focus is on "Cancel".
  await page.keyboard.press("Enter");
  await page.getByRole("dialog").waitFor({ state: "hidden", ...patience });
  assert.equal(await row.getByText("running", { exact: true }).count(), 1);
  await press(page, stop);
  await press(page, page.locator("#ask-yes"));
  await row.getByText("stopped", { exact: true }).waitFor(patience);
  await press(page, row.getByRole("button", { name: "start steady", exact: true }));
  await press(page, page.locator("#ask-yes"));
  await row.getByText("running", { exact: true }).waitFor(patience);
  // A process that was killed is started again. The row shows the number of restarts and the last end.
  const number = async () => Number(await row.locator("td").first().textContent());
  const killed = await number();
  process.kill(killed, "SIGKILL");
  await row.filter({ hasText: /1SIGKILL from outside, .* ago/ }).waitFor(patience);
  await row.filter({ hasNotText: String(killed) }).getByText("running", { exact: true }).waitFor(patience);
  await press(page, row.getByRole("button", { name: "restart steady", exact: true }));
  await page.getByRole("dialog").getByText("restart process steady?").waitFor(patience);
  const before = await number();
  await press(page, page.locator("#ask-yes"));
  await row.filter({ hasNotText: String(before) }).getByText("running", { exact: true }).waitFor(patience);

  await go(page, "signals");
  await page.getByLabel("Name", { exact: true }).fill("X:SET");
  await page.keyboard.press("Enter");
  const signal = page.locator("tr[data-signal='X:SET']");
  await signal.getByText("connected", { exact: true }).waitFor(patience);
  await setSignal(page, "X:SET", "3.5");
  await signal.getByText("3.5 A").waitFor(patience);
  // The form has the present value and the unit. Escape closes it, and the focus returns to its button.
  const set = signal.getByRole("button", { name: "set X:SET" });
  await press(page, set);
  assert.equal(await page.getByLabel("New value of X:SET").inputValue(), "3.5");
  await accessible(page, "setting a signal");
  await page.getByLabel("New value of X:SET").press("Escape");
  await signal.locator("button:focus", { hasText: "set" }).waitFor(patience);
  assert.deepEqual(wrong, []);
  await context.close();
}

/** Acknowledges, shelves and unshelves an alarm by keyboard. The row shows the user. */
async function acknowledges() {
  const { page, wrong, context } = await open(plant.operator);
  await go(page, "alarms");
  const alarm = page.locator("tr[data-alarm$='/RF/X:TEMP']");
  await alarm.getByText("not acknowledged").waitFor(patience);
  const act = (name) => press(page, alarm.getByRole("button", { name, exact: true }));
  await act("acknowledge X:TEMP");
  await alarm.getByText("MAJOR_ACK").waitFor(patience);
  await page.getByText("acknowledge X:TEMP: done").waitFor(patience);
  await page.locator("[data-alarm] button:focus", { hasText: "unacknowledge" }).waitFor(patience);
  await act("unacknowledge X:TEMP");
  await page.locator("#alarm-news", { hasText: "MAJOR X:TEMP, Cooling water" }).waitFor(patience);
  // In the row: Escape closes the form, and the focus returns to its button.
  await act("shelve X:TEMP");
  await accessible(page, "shelving");
  await page.getByLabel("because").press("Escape");
  await alarm.locator("button:focus", { hasText: "shelve" }).waitFor(patience);
  await act("shelve X:TEMP");
  await page.getByLabel("because").fill("pump on order");
  await page.keyboard.press("Enter");
  await alarm.getByText(/shelved for .* by .*: pump on order/).waitFor(patience);
  await page.getByLabel("show shelved and disabled alarms").uncheck();
  await alarm.waitFor({ state: "hidden", ...patience });
  await page.getByLabel("show shelved and disabled alarms").check();
  await act("unshelve X:TEMP");
  await alarm.getByText("not acknowledged").waitFor(patience);
  await accessible(page, "alarms");
  await page.getByRole("button", { name: "acknowledge all shown" }).click();
  await page.locator("#ask-yes").click();
  await alarm.getByText("MAJOR_ACK").waitFor(patience);
  assert.deepEqual(wrong, []);
  await context.close();
}

export default [looks, asks, acts, acknowledges];

// The oscilloscope: each trigger and mode, then through a capture.
import assert from "node:assert/strict";
import fs from "node:fs";
import path from "node:path";
import { accessible, go, open, patience, plant, setSignal, shot, tabTo } from "./browser.mjs";

/** Exports what is shown. Returns the path of the file. */
async function exported(page, section, kind) {
  const waits = page.waitForEvent("download", patience);
  await page.locator("#scope-form").selectOption(kind);
  await section.getByRole("button", { name: "export", exact: true }).click();
  const download = await waits;
  const file = path.join(plant.folder, download.suggestedFilename());
  assert.ok(file.endsWith(`.${kind}`), file);
  await download.saveAs(file);
  return file;
}

/** Opens the drawers, whose fields are rarely used. */
async function unfold(page) {
  for (const summary of await page.locator("#scope-panel summary").all()) await summary.click();
}

/** Uses each kind of trigger and mode, the first one without a pointer. */
async function triggers() {
  const { page, wrong, context } = await open(plant.viewer);
  await go(page, "scope");
  await unfold(page);
  const section = page.locator("section[aria-labelledby=scope-title]"), about = page.locator("#scope-about");
  await page.locator(`#scope-segment option[value='${plant.segment}']`).waitFor({ state: "attached", ...patience });
  await page.locator("#scope-segment").selectOption(plant.segment);
  const set = async (trigger, { mode = "single", length = 50, pre = 20, holdoff = 0, keep = 4 } = {}) => {
    await page.locator("#scope-mode").selectOption(mode);
    for (const [id, value] of Object.entries({ trigger, length, pre, holdoff, keep })) await page.locator(`#scope-${id}`).fill(String(value));
    await page.locator("#scope-keep").press("Enter");
  };
  const captured = (text) => about.filter({ hasText: text }).waitFor(patience);
  /** Returns the pulse of the trigger that is shown. It must be the first row at or after a pulse whose remainder modulo 100 is `phase`. */
  const pulse = async (phase) => {
    const trigger = Number((await about.textContent()).match(/at pulse (\d+), /)[1]);
    const pulses = JSON.parse(fs.readFileSync(await exported(page, section, "json"), "utf8")).pulses.map(Number);
    const before = pulses[pulses.indexOf(trigger) - 1], hundred = (one) => Math.floor((one - phase) / 100);
    assert.ok(hundred(before) < hundred(trigger), `${before}, then ${trigger}`);
    return trigger;
  };

  await tabTo(page, page.locator("#scope-trigger"));
  await page.keyboard.type("pulse % 100 = 7");
  await tabTo(page, page.locator("#scope-length"));
  await page.keyboard.press("Control+A");
  await page.keyboard.type("60");
  await page.keyboard.press("Enter");
  await captured(/trigger at pulse \d+, 60 rows/);
  await pulse(7);
  await page.locator("#scope-state", { hasText: "stopped, 1 capture" }).waitFor(patience);

  // Each trigger occurs while the value alternates between 0 and 1.
  for (const [at, trigger] of ["beam enters 0.5..1.5", "beam leaves 0.5..1.5", "beam = 0.5 crossing", "beam > 0.5 rising", "beam < 0.5 falling", "beam > 0.5", "beam < 0.5"].entries()) {
    await set(trigger, { length: 20 + at });
    await captured(new RegExp(`trigger at pulse \\d+, ${20 + at} rows`));
  }
  // There are ten triggers per second. The holdoff accepts one of five.
  await set("pulse % 100 = 0", { mode: "normal", length: 30, holdoff: 450 });
  await page.locator("#scope-state", { hasText: /triggers? came while none counted/ }).waitFor(patience);
  // Wait for as many captures as are kept, so that those of earlier setups are gone.
  await page.locator("#scope-state", { hasText: /, ([4-9]|\d\d+) captures/ }).waitFor(patience);
  await section.getByRole("button", { name: "stop", exact: true }).click();
  await page.locator("#scope-state", { hasText: "stopped" }).waitFor(patience);
  assert.equal(await page.locator("#scope-capture option").count(), 5, "the newest, and four");
  const kept = [];
  for (let at = 1; at <= 4; at++) {
    await page.locator("#scope-capture").selectOption({ index: at });
    const label = (await page.locator("#scope-capture option").nth(at).textContent()).split(",")[0];
    await captured(`${label}: trigger at pulse`);
    kept.push(await pulse(0));
  }
  for (const [at, one] of kept.entries()) assert.ok(at === 0 || one - kept[at - 1] > 450, `${kept}`);

  await set("amplitude > 99", { mode: "auto", length: 31 });
  await captured(/auto at pulse \d+, 31 rows/);
  await set("amplitude > 99", { mode: "normal", length: 32 });
  await page.locator("#scope-state", { hasText: "armed, 0 captures" }).waitFor(patience);
  await section.getByRole("button", { name: "force" }).click();
  await captured(/forced at pulse \d+, 32 rows/);
  for (const [trigger, length] of [["miss", 33], ["overrun", 34]]) {
    await set(trigger, { length, pre: 0 });
    const seen = about.filter({ hasText: `, ${length} rows` }), until = Date.now() + patience.timeout;
    while (await seen.count() === 0) {
      assert.ok(Date.now() < until, `${trigger} begins no capture`);
      // The loop is stopped for some of its cycles.
      process.kill(plant.loop, "SIGSTOP");
      await page.waitForTimeout(30);
      process.kill(plant.loop, "SIGCONT");
      await page.waitForTimeout(200);
    }
    assert.match(await about.textContent(), /trigger at pulse/);
  }
  // The buttons of the row set the mode and arm.
  const run = section.getByRole("button", { name: "run", exact: true });
  await run.click();
  await section.locator("[data-mode=normal][aria-pressed=true]").waitFor(patience);
  assert.equal(await page.locator("#scope-mode").inputValue(), "normal");
  await section.getByRole("button", { name: "stop", exact: true }).click();
  await section.locator("[data-mode=normal][aria-pressed=false]").waitFor(patience);
  assert.deepEqual(wrong, []);
  await context.close();
}

/** Uses a capture: a trigger by keyboard, cursors, zoom, spectrum, a computed trace, export and import. */
async function captures() {
  const { page, wrong, context } = await open(plant.viewer, { acceptDownloads: true });
  await go(page, "scope");
  await unfold(page);
  const section = page.locator("section[aria-labelledby=scope-title]");
  const about = page.locator("#scope-about"), readings = section.getByRole("region", { name: "Readings" });
  await page.locator(`#scope-segment option[value='${plant.segment}']`).waitFor({ state: "attached", ...patience });
  await page.locator("#scope-segment").selectOption(plant.segment);
  for (const name of ["drive", "drive-phase"]) await section.locator(`fieldset input[value='${name}']`).uncheck();
  await page.locator("#scope-variable").selectOption("beam");
  await page.locator("#scope-kind").selectOption({ label: "changes" });
  assert.equal(await page.locator("#scope-trigger").inputValue(), "beam changes");
  await page.locator("#scope-length").fill("200");
  await page.locator("#scope-mode").selectOption("normal");
  await page.locator("#scope-length").press("Enter");
  await about.filter({ hasText: /trigger at pulse \d+, 200 rows/ }).waitFor(patience);
  const pixels = () => page.evaluate(() => {
    const canvas = document.querySelector("#scope-plot canvas");
    return canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data.reduce((sum, value, at) => sum + (at % 4 === 3 && value > 0 ? 1 : 0), 0);
  });
  assert.ok(await pixels() > 1000, "traces are drawn");
  assert.equal(await readings.locator("tbody tr").count(), 2);
  await page.locator("#scope-capture option").nth(2).waitFor({ state: "attached", ...patience });

  // Another viewer may watch, but not take the loop over.
  const other = await open(plant.viewer);
  await go(other.page, "scope");
  await other.page.locator(`#scope-segment option[value='${plant.segment}']`).waitFor({ state: "attached", ...patience });
  await other.page.locator("#scope-segment").selectOption(plant.segment);
  await other.page.getByRole("button", { name: "run", exact: true }).click();
  await other.page.locator("#scope-outcome", { hasText: "another client has set up the oscilloscope" }).waitFor(patience);
  await other.page.getByRole("button", { name: "look only" }).click();
  await other.page.locator("#scope-about", { hasText: "trigger at pulse" }).waitFor(patience);
  assert.deepEqual(other.wrong, []);
  await other.context.close();

  // A trigger outside the loop: a message of another client.
  await page.locator("#scope-kind").selectOption({ label: "message" });
  assert.equal(await page.locator("#scope-trigger").inputValue(), "message put/*");
  await page.locator("#scope-trigger").fill("message get/sr_*");
  await page.locator("#scope-length").press("Enter");
  // The state may still be that of the previous setup. Send messages until one of them is the trigger.
  await go(page, "messages");
  const byMessage = about.filter({ hasText: /message at pulse \d+, 200 rows/ }), until = Date.now() + patience.timeout;
  while (await byMessage.count() === 0) {
    assert.ok(Date.now() < until, "a message begins no capture");
    await page.getByLabel("verb/object/complement").fill("get/sr_rf_acc/status");
    await page.keyboard.press("Enter");
    await page.waitForTimeout(500);
  }
  await go(page, "scope");

  // An alarm is also a trigger: set a signal above its limit, and back.
  const who = await open(plant.operator);
  await go(who.page, "signals");
  await who.page.getByLabel("Name", { exact: true }).fill("X:SET");
  await who.page.keyboard.press("Enter");
  const signal = who.page.locator("tr[data-signal='X:SET']");
  await signal.getByText("connected", { exact: true }).waitFor(patience);
  const set = async (value) => {
    await setSignal(who.page, "X:SET", value);
    await signal.getByText(`${value} A`).waitFor(patience);
  };
  await page.locator("#scope-kind").selectOption({ label: "alarm" });
  assert.equal(await page.locator("#scope-trigger").inputValue(), "alarm *");
  await page.locator("#scope-length").press("Enter");
  await page.locator("#scope-state", { hasText: "armed, 0 captures" }).waitFor(patience);
  await set("200");
  await about.filter({ hasText: /alarm at pulse \d+, 200 rows/ }).waitFor(patience);
  await set("3.5");
  assert.deepEqual(who.wrong, []);
  await who.context.close();

  await section.getByRole("button", { name: "stop", exact: true }).click();
  await page.locator("#scope-state", { hasText: "stopped" }).waitFor(patience);
  await page.locator("#scope-capture").selectOption({ index: 1 });
  await page.locator("#scope-plot").focus();
  await page.keyboard.press("a");
  await page.locator("#scope-between", { hasText: /Δt .*s, 1\/Δt .* Hz/ }).waitFor(patience);
  await page.locator("#scope-a").fill("-10");
  await page.locator("#scope-b").fill("10");
  await page.locator("#scope-b").press("Tab");
  const [, triggered] = (await about.textContent()).match(/at pulse (\d+), /);
  const capture = JSON.parse(fs.readFileSync(await exported(page, section, "json"), "utf8"));
  // A cursor is on a row. If the loop skipped that pulse, it is on the nearest row.
  const pulses = capture.pulses.map((pulse) => Number(pulse) - Number(triggered));
  const digits = (value) => Number(value.toPrecision(5));
  const nearest = (at) => Math.min(...pulses.map((pulse) => Math.abs(pulse - at)));
  const late = Date.now() + patience.timeout;
  for (;;) {
    const between = await page.locator("#scope-between").textContent();
    const [from, to] = between.match(/pulse (\d+)/g).map((text) => Number(text.slice(6)) - Number(triggered));
    const stand = pulses.includes(from) && pulses.includes(to) && Math.abs(from + 10) === nearest(-10) && Math.abs(to - 10) === nearest(10);
    // The time of a pulse is the measured one.
    const time = (to - from) * capture.period_s;
    if (stand && between.includes(`Δt ${digits(time * 1e3)} ms, 1/Δt ${digits(1 / time)} Hz`)) break;
    assert.ok(Date.now() < late, `${between} of ${pulses}`);
    await page.waitForTimeout(50);
  }
  assert.match(await readings.locator("tr[data-trace=amplitude] td").nth(8).textContent(), /\d/);
  await page.locator("#scope-plot").focus();
  await page.keyboard.press("+");
  await about.filter({ hasText: /shown -?\d/ }).waitFor(patience);
  await page.waitForFunction(() => { const [, whole, shown] = document.querySelector("#scope-about").textContent.match(/rows from (.*); shown ([^,]*)/); return whole !== shown; }, null, patience);
  const alone = await pixels(), tired = Date.now() + patience.timeout;
  await page.locator("#scope-reference").selectOption({ index: 2 });
  while (await pixels() <= alone) {
    assert.ok(Date.now() < tired, "the other capture is not drawn");
    await page.waitForTimeout(50);
  }
  await shot(page, "scope", section);
  await page.keyboard.press("0");
  await section.getByRole("button", { name: "add the trace that is made of two" }).click();
  await readings.locator("tr[data-trace='amplitude − phase']").waitFor(patience);
  for (const show of ["spectrum", "XY", "persistence", "over time"]) {
    await page.locator("#scope-show").selectOption({ label: show });
    await page.locator(`#scope-plot canvas[data-shown='${show}']`).waitFor(patience);
    assert.ok(await pixels() > 500, `${show} is drawn`);
  }

  const before = await readings.locator("tr[data-trace=amplitude] td").first().textContent();
  for (const kind of ["csv", "npy", "json"]) {
    const file = await exported(page, section, kind);
    await page.locator("#scope-file").setInputFiles(file);
    await page.locator("#scope-outcome", { hasText: `${path.basename(file)} is open` }).waitFor(patience);
    await about.filter({ hasText: path.basename(file) }).filter({ hasText: "200 rows" }).waitFor(patience);
    assert.equal(await readings.locator("tr[data-trace=amplitude] td").first().textContent(), before);
  }
  await page.locator("#scope-file").setInputFiles({ name: "bad.csv", mimeType: "text/csv", buffer: Buffer.from("a,b\n") });
  await page.locator("#scope-outcome", { hasText: "bad.csv: line 1" }).waitFor(patience);
  await accessible(page, "oscilloscope");
  assert.deepEqual(wrong, []);
  await context.close();
}

export default [triggers, captures];

// A plant with a shield and a flight recorder.
import assert from "node:assert/strict";
import fs from "node:fs";
import { accessible, go, open, patience, plant, shot } from "./browser.mjs";

/** A setting of the shield that any process of root can change. */
const KNOB = "/proc/irq/default_smp_affinity";

/** The panel shows the owner and the disturbances of each CPU, and a changed setting for as long as it differs. */
async function shields() {
  const { page, wrong, context } = await open(plant.viewer);
  await go(page, "shield");
  const section = page.locator("section[aria-labelledby=shield-title]");
  await section.getByText(`CPU ${plant.cpu} is shielded; counted over`).waitFor(patience);
  const cpu = (number) => section.locator("tbody tr").filter({ has: page.getByRole("rowheader", { name: number, exact: true }) });
  // The counts are not checked: the threads of the plant run on this CPU, and ticks reach a busy CPU.
  await cpu(plant.cpu).filter({ hasText: new RegExp(`^${plant.cpu}shield\\d`) }).waitFor(patience);
  assert.match(await cpu("0").textContent(), /^0housekeeping\d/);
  const drift = section.getByText(/^not as it was written: new interrupts: wrote \S+, found 0-1$/);
  assert.equal(await drift.count(), 0);
  // Every kernel binds some threads to each CPU.
  const state = section.getByRole("group", { name: "State of the shield" });
  await state.getByText(/^kernel threads: \d+ are bound to these CPUs by the kernel and stay: /).waitFor(patience);
  const written = fs.readFileSync(KNOB, "utf8").trim();
  try {
    fs.writeFileSync(KNOB, "3");
    await drift.waitFor(patience);
    await accessible(page, "shield");
  } finally {
    fs.writeFileSync(KNOB, written);
  }
  await drift.waitFor({ state: "detached", ...patience });
  await shot(page, "shield", section);
  assert.deepEqual(wrong, []);
  await context.close();
}

/** The last late wake-ups, each with the tasks that used the CPU meanwhile, with times that add up. */
async function explains() {
  const { page, wrong, context } = await open(plant.viewer);
  await go(page, "latency");
  const section = page.locator("section[aria-labelledby=latency-title]");
  await section.getByText(/^\d+ of \d+ wake-ups were later than 500 µs; \d+\.\d % of that delay is not explained$/).waitFor(patience);
  const late = section.getByRole("region", { name: "The last late wake-ups" }).locator("tbody tr");
  const row = late.filter({ hasText: /preempted by hog \(hog \d+\) \(real-time 60\)/ }).first();
  await row.waitFor(patience);
  const cells = await row.locator("th, td").allTextContents();
  assert.match(cells[0], / ago$/);
  assert.match(cells[1], /^\S+ \(\d+\)$/);
  assert.equal(cells[2], plant.cpu);
  const ns = (text) => { const [, value, unit] = text.match(/([\d.]+) (ns|µs|ms|s)$/); return value * { ns: 1, µs: 1e3, ms: 1e6, s: 1e9 }[unit]; };
  // A cause may contain a comma: "host or masked interrupts, under hog 15.9 µs".
  const parts = cells[4].split(/(?<= (?:ns|µs|ms|s)), /).map(ns), sum = parts.reduce((all, one) => all + one, 0);
  assert.ok(Math.abs(sum - ns(cells[3])) <= 0.01 * sum, `${cells}`);
  await accessible(page, "late wake-ups");
  await shot(page, "late", section);
  // The overview shows the same, to scale.
  await go(page, "overview");
  await page.locator(".late .stack[aria-label*='preempted by hog']").first().waitFor(patience);
  await page.locator("[data-tile=shield] strong", { hasText: `CPU ${plant.cpu}` }).waitFor(patience);
  await accessible(page, "overview of a shield");
  await shot(page, "overview-shield");
  assert.deepEqual(wrong, []);
  await context.close();
}

export default [shields, explains];

// Uses the page as people do: node tour.mjs TOUR PLANT, with NODE_MODULES; PLANT is JSON. With SHOTS=folder it saves pictures there; with
// PAGE=folder it uses the files of the page in that folder.
import { browser, seen } from "./browser.mjs";

const tour = process.argv[2];
const { default: steps } = await import(`./${tour}.mjs`);
try {
  for (const step of steps) {
    console.log(`${tour}: ${step.name}`);
    await step();
  }
  console.log("all good");
} catch (error) {
  console.log(error.stack);
  console.log(await seen());
  process.exitCode = 1;
} finally {
  await browser.close();
}

// npm run study -- NAME [--figures]: trains the small models of a study with PyTorch, measures them with headwise, and writes
// result.json, the figures and the page of text into the study's folder. --figures: only the latter two, from result.json.

import { readFileSync, writeFileSync } from "node:fs";
import { parseArgs } from "node:util";
import { NoPyTorch } from "./python.ts";
import { STUDIES } from "./studies.ts";
import { writeResult } from "./study.ts";

const { values, positionals } = parseArgs({ allowPositionals: true, options: { figures: { type: "boolean" } } });
const [name = ""] = positionals;
if (positionals.length !== 1 || !Object.hasOwn(STUDIES, name)) {
  const given = positionals.length === 0 ? "none" : JSON.stringify(positionals.join(" "));
  console.error(`npm run study takes one of ${Object.keys(STUDIES).join(", ")}; got ${given}.`);
  process.exit(1);
}
const study = STUDIES[name]!;
const folder = new URL(`./${name}/`, import.meta.url);
if (!values.figures) {
  const began = performance.now();
  const cache = new URL(`../../node_modules/.cache/headwise-studies/${name}/`, import.meta.url);
  const result = await study.run(cache, console.log).catch((error: unknown) => {
    if (!(error instanceof NoPyTorch)) throw error;
    console.error(error.message);
    process.exit(1);
  });
  writeFileSync(new URL("result.json", folder), writeResult(result));
  console.log(`done in ${((performance.now() - began) / 60_000).toFixed(1)} minutes`);
}
const files = study.write(JSON.parse(readFileSync(new URL("result.json", folder), "utf8")));
for (const [file, text] of Object.entries(files)) writeFileSync(new URL(file, folder), text);
console.log(`examples/studies/${name}: result.json, ${Object.keys(files).join(", ")}`);

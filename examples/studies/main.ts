// npm run study -- NAME [--figures]: trains the small models of a study with PyTorch, measures them with headwise, and writes
// result.json, the figures and the page of text into the study's folder. --figures: only the latter two, from result.json.

import { readFileSync, writeFileSync } from "node:fs";
import { parseArgs } from "node:util";
import { NoPyTorch } from "./python.ts";
import { STUDIES } from "./studies.ts";
import { filesOf, writeResult } from "./study.ts";

const names = Object.keys(STUDIES).join(", ");
const options = { figures: { type: "boolean" }, help: { type: "boolean", short: "h" } } as const;
// Not strict, which throws: every error is one line.
const { values, tokens } = parseArgs({ allowPositionals: true, strict: false, tokens: true, options });
if (values.help) {
  console.log(
    `npm run study -- NAME [--figures]: trains and measures one of ${names}; --figures: draws from result.json`,
  );
  process.exit(0);
}
const given = tokens.flatMap((each) => (each.kind === "positional" ? each.value : []));
const [name = ""] = given;
const unknown = tokens.flatMap((each) =>
  each.kind === "option" && !Object.hasOwn(options, each.name) ? each.rawName : [],
);
if (given.length !== 1 || unknown.length > 0 || !Object.hasOwn(STUDIES, name)) {
  const all = [...given, ...unknown];
  const got = all.length === 0 ? "none" : JSON.stringify(all.join(" "));
  console.error(`npm run study takes one of ${names}; got ${got}.`);
  process.exit(1);
}
const study = STUDIES[name]!;
const folder = new URL(`./${name}/`, import.meta.url);
if (!values.figures) {
  const began = performance.now();
  const cache = new URL(`../../node_modules/.cache/headwise-studies/${name}/`, import.meta.url);
  const result = await study.measure(cache, console.log).catch((error: unknown) => {
    if (!(error instanceof NoPyTorch)) throw error;
    console.error(error.message);
    process.exit(1);
  });
  writeFileSync(new URL("result.json", folder), writeResult(result));
  console.log(`done in ${((performance.now() - began) / 60_000).toFixed(1)} minutes`);
}
const files = filesOf(study, JSON.parse(readFileSync(new URL("result.json", folder), "utf8")));
for (const [file, text] of Object.entries(files)) writeFileSync(new URL(file, folder), text);
console.log(`examples/studies/${name}: result.json, ${Object.keys(files).join(", ")}`);

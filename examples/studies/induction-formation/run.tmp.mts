import { readFileSync, writeFileSync } from "node:fs";
process.env.PYTHON = "/tmp/nopython"; const { measureInductionFormation } = await import("./measure.ts");
import { writeInductionFormation } from "./page.ts";
import { writeResult } from "../study.ts";
const t=performance.now();

const r = await measureInductionFormation(new URL("../../../node_modules/.cache/headwise-studies/induction-formation/", import.meta.url), (l)=>console.log(((performance.now()-t)/1000).toFixed(0), l));
writeFileSync(new URL("result.json", import.meta.url), writeResult(r));
for (const [f, x] of Object.entries(writeInductionFormation(JSON.parse(readFileSync(new URL("result.json", import.meta.url),"utf8"))))) writeFileSync(new URL(f, import.meta.url), x);
console.log("done", (performance.now()-t)/1000);

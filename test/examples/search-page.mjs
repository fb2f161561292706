// The page that searches documents: its list is that of the same search in Node.

import { mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { fetchTrained, MINILM } from "../support/trained-model.ts";
import { expect } from "./given.mjs";
import { expectNarrow, textOf, visit } from "./pages.mjs";
import { end, run, serve } from "./processes.mjs";

/** Questions, and a heading that the first answer to each stands under. */
const QUESTIONS = [
  ["labels of my own without training", "Labels"],
  ["how long does a search take with many rows", "How many rows"],
];

export async function searchPage({ browser, root, folder, temporary }) {
  const into = temporary("minilm");
  mkdirSync(into, { recursive: true });
  const fetched = fetchTrained(MINILM, into);
  if (fetched.problem) return `not run, because there is no model: ${fetched.problem}`;
  const cwd = folder("search");
  await run(process.execPath, ["index.ts", fetched.folder, "--docs", join(root, "docs")], { cwd });
  const wanted = await answersOf(root, join(cwd, "built"));
  const { child, url } = await serve(process.execPath, ["serve.mjs", "0", "--folder", cwd], { cwd: folder("browser") });
  try {
    return await visit(browser, `${url}?deterministic`, async (page, errors) => {
      await expectNarrow(page);
      await page.waitForSelector("#query:enabled");
      for (const [i, [question, heading]] of QUESTIONS.entries()) {
        await page.$eval("#query", (input) => Object.assign(input, { value: "" }));
        await page.type("#query", question);
        // While it is typed, its beginnings are answered too.
        const linked = (urls) => `${Array.from(document.querySelectorAll("#results a"), ({ href }) => href)}` === urls;
        await page.waitForFunction(linked, {}, `${wanted[i]}`);
        expect("the first heading", await textOf(page, "#results a"), new RegExp(`› ${heading}$`));
      }
      // A model may have files that this one lacks.
      expect("errors of the page", errors.filter((error) => !error.includes("404")).join(), "");
      return `${await textOf(page, "#status")} The answers are those of Node`;
    });
  } finally {
    end(child);
  }
}

/** The addresses that the same search gives in Node, of each question. */
async function answersOf(root, built) {
  const load = (entry) => import(pathToFileURL(join(root, `node_modules/headwise/dist/${entry}.js`)));
  const [{ openModel }, { createIndex }] = [await load("index"), await load("retrieval")];
  const { shape, passages } = JSON.parse(readFileSync(join(built, "passages.json"), "utf8"));
  using model = await openModel(join(built, "model"), { for: "embed", deterministic: true });
  const index = createIndex(model.parts.kernels, { ...shape, bytes: readFileSync(join(built, "vectors.bin")) });
  const found = [];
  for (const [question] of QUESTIONS)
    found.push(index.search(await model.embed(question, { task: "query" })).map(({ index: i }) => passages[i].url));
  return found;
}

// Makes what a search needs in the folder `built`: passages of documents, a vector of each, and the model in 8 bits.
//   node index.ts [MODEL] [--docs FOLDER --base URL]
// MODEL is a folder of sentence-transformers, or the name of one on the hub. The documents are Markdown in FOLDER, and are shown at
// URL; by default they are those of this repository.

import { existsSync } from "node:fs";
import { mkdir, readdir, readFile, writeFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { parseArgs } from "node:util";
import { openModel } from "headwise";
import headwise from "headwise/package.json" with { type: "json" };
import { packVectors } from "headwise/retrieval";
import { quantizeSafetensors } from "headwise/weights";
import { type Passage, passagesOf } from "./passages.ts";

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    docs: { type: "string", default: join(import.meta.dirname, "../../docs") },
    base: { type: "string", default: headwise.homepage.replace("#readme", "/blob/main/docs/") },
  },
});
const [name = "sentence-transformers/all-MiniLM-L6-v2"] = positionals;
const source = existsSync(name)
  ? pathToFileURL(`${resolve(name)}/`)
  : new URL(`https://huggingface.co/${name}/resolve/main/`);
const built = new URL("built/", import.meta.url);

const passages: Passage[] = [];
for (const path of (await readdir(values.docs, { recursive: true })).sort()) {
  // What programs put there is not read: packages, and the report of the API, which lists declarations.
  if (!path.endsWith(".md") || path.includes("node_modules") || path.endsWith("report.md")) continue;
  const url = values.base + path.replaceAll("\\", "/");
  passages.push(...passagesOf(await readFile(join(values.docs, path), "utf8"), url));
}

// The page and the Worker get the files that openModel asks for, and no others.
const weights = await inBytes(await read("model.safetensors"));
const texts: Record<string, string> = {};
async function open(file: string) {
  if (file === "model.safetensors") return weights;
  const bytes = await read(file);
  if (bytes) texts[file] = String(bytes);
  return bytes;
}
using model = await openModel(open, { for: "embed", deterministic: true });
console.log(`${passages.length} passages, which take some 50 ms each on one processor`);
const documents = passages.map(({ title, text }) => `${title}\n${text}`);
const { bytes, ...shape } = packVectors(await model.embed(documents, { task: "document" }), { format: "int8" });

await write("passages.json", JSON.stringify({ shape, passages }));
await write("vectors.bin", bytes);
await write("model/model.safetensors", weights);
for (const [file, text] of Object.entries(texts)) await write(`model/${file}`, text);
// The same in one file, for the Worker.
await write("model.json", JSON.stringify(texts));

/** A file of the model; undefined if there is none. */
async function read(file: string): Promise<Buffer | undefined> {
  const url = new URL(file, source);
  if (url.protocol === "file:") return existsSync(url) ? readFile(url) : undefined;
  const response = await fetch(url);
  if (response.status === 404) return undefined;
  if (!response.ok) throw new Error(`${url}: ${response.status}`);
  return Buffer.from(await response.arrayBuffer());
}

/** A safetensors file with all matrices in 8 bits. */
async function inBytes(file: Buffer | undefined): Promise<Buffer> {
  if (!file) throw new Error(`${name} has no model.safetensors`);
  const pieces: Uint8Array[] = [];
  for await (const piece of await quantizeSafetensors(file, { format: "Q8_0", include: /weight$/ })) pieces.push(piece);
  return Buffer.concat(pieces);
}

async function write(file: string, data: string | Uint8Array): Promise<void> {
  const url = new URL(file, built);
  await mkdir(new URL(".", url), { recursive: true });
  await writeFile(url, data);
  console.log(`built/${file}: ${Math.ceil(data.length / 1000)} KB`);
}

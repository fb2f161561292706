// The ids that llama.cpp itself gives for the vocabularies here, beside ours: README.md says how to run it.

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { readGgufTokenizer } from "../../../src/entries/text.ts";
import type { GgufValue } from "../../../src/files/gguf.ts";
import { bool, f32, list, type Typed, text, u32, writeGguf } from "../../support/gguf-writer.ts";
import { readTextVectors, toGgufVocabulary } from "../../support/vocabulary.ts";

/** The part of node-llama-cpp's addon that is used here. */
interface Addon {
  loadBackends(folder: string): void;
  setLogger(logger: () => void): void;
  init(): Promise<void>;
  readonly AddonModel: new (
    path: string,
    params: object,
  ) => { init(): Promise<boolean>; tokenize(text: string, special: boolean): Uint32Array };
}

const folder = join(
  import.meta.dirname,
  "../../../bench/peers/node_modules/@node-llama-cpp/linux-x64/bins/linux-x64",
);
const addon = createRequire(import.meta.url)(`${folder}/llama-addon.node`) as Addon;
addon.setLogger(() => {});
addon.loadBackends(folder);
await addon.init();

/** What llama.cpp wants to know of a model besides its vocabulary. */
const SHAPE = ["context_length", "embedding_length", "block_count", "feed_forward_length", "attention.head_count"];

function typed(value: GgufValue): Typed {
  if (typeof value === "string") return text(value);
  if (typeof value === "boolean") return bool(value);
  if (typeof value === "number") return u32(value);
  const items = Array.from(value as ArrayLike<unknown>);
  return list(value instanceof Int32Array ? 5 : value instanceof Float32Array ? 6 : 8, items);
}

const temporary = mkdtempSync(join(tmpdir(), "llama-cpp-"));

/** Prints the texts whose ids differ. */
async function compare(name: string, more: Readonly<Record<string, GgufValue>>, label: string): Promise<void> {
  const vectors = readTextVectors(name);
  const metadata = toGgufVocabulary(vectors, more);
  const path = join(temporary, `${label}.gguf`);
  const written: Record<string, Typed> = {
    "general.architecture": text("llama"),
    "llama.attention.layer_norm_rms_epsilon": f32(1e-5),
  };
  for (const key of SHAPE) written[`llama.${key}`] = u32(1);
  for (const [key, value] of metadata) written[key] = typed(value);
  writeFileSync(path, writeGguf({ metadata: written }));
  const model = new addon.AddonModel(path, { gpuLayers: 0, vocabOnly: true, useMmap: true, addonExports: addon });
  if (!(await model.init())) throw new Error(`llama.cpp could not read the vocabulary ${label}`);
  const { encode } = await readGgufTokenizer({ metadata });
  const texts = vectors.cases.map(([text]) => text);
  const differ = texts.filter(
    (each) => JSON.stringify(Array.from(model.tokenize(each, true))) !== JSON.stringify(encode(each, { addSpecial: false })),
  );
  console.log(`${label.padEnd(16)} ${differ.length} of ${texts.length} differ ${JSON.stringify(differ)}`);
}

for (const pre of Object.keys(readTextVectors("byte-level").families ?? {})) await compare("byte-level", { pre }, pre);
await compare("sentencepiece-bpe", { bos_token_id: 1, eos_token_id: 2, add_bos_token: false }, "llama");
const spaces = { add_space_prefix: true, remove_extra_whitespaces: true };
await compare("unigram", { eos_token_id: 1, add_eos_token: false, ...spaces }, "t5");
await compare("word-piece", { bos_token_id: 2, cls_token_id: 2, seperator_token_id: 3 }, "bert");
rmSync(temporary, { recursive: true });
process.exit();

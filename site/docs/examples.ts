// Examples of documents that run in a page: each becomes the script of a worker, which posts what it prints.

import { createHash } from "node:crypto";
import { writeFileSync } from "node:fs";
import { join } from "node:path";

/** Models that examples read, and where the site has them, from the scripts in assets/. */
const MODELS: Readonly<Record<string, string>> = {
  '"model"': "../models/induction",
  '"model/stories"': "../models/stories",
  '"model/stories/stories.gguf"': "../models/stories/stories.gguf",
};

/** Names that pages do not have, or files that the site does not. */
const ELSEWHERE =
  /"node:|\bprocess\.|\.wasm"|createFolderStore|"[\w./-]+\.(?:safetensors|gguf|npy)"|headwise\/(?:threads|shards)"/;

export interface Examples {
  /** The id of an example, which runs if it needs nothing but the package. */
  add(code: string): string | undefined;
  /** Writes the scripts to a folder; returns their paths by id. */
  write(folder: string): Map<string, string>;
}

export function collectExamples(): Examples {
  const codes = new Map<string, string>();
  return {
    add(code) {
      let [own, others] = [code, code];
      for (const [path, place] of Object.entries(MODELS)) {
        own = own.replaceAll(path, `new URL(${JSON.stringify(place)}, import.meta.url).href`);
        others = others.replaceAll(path, "");
      }
      if (!/from "headwise/.test(own) || ELSEWHERE.test(others)) return undefined;
      const id = createHash("sha256").update(own).digest("hex").slice(0, 10);
      codes.set(id, own);
      return id;
    },
    write(folder) {
      return new Map(
        [...codes].map(([id, code]) => {
          const file = join(folder, `example-${id}.ts`);
          writeFileSync(file, `import { finish } from "headwise-site/prelude";\n${code}\nfinish();\n`);
          return [id, file];
        }),
      );
    },
  };
}

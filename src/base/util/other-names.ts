// Options under the names that other libraries have for them.

import { type AllFieldsOf, readFields } from "./arguments.ts";
import { describe } from "./errors.ts";

/** By our names: those of other libraries, without case and underscores. */
const OTHER_NAMES: Readonly<Record<string, string>> = {
  maxTokens: "maxnewtokens maxlength maxoutputtokens maxcompletiontokens numpredict npredict",
  temperature: "dosample temp",
  stopIds: "eostokenid eostokenids stoptokenids stoptokens",
  stop: "stopsequences stopstrings stopwords",
  repetitionPenalty: "repeatpenalty",
  seed: "randomseed",
  maxSeqLen: "nctx numctx contextlength maxlength maxmodellen maxpositionembeddings maxseqlength",
  weights: "dtype torchdtype quantization quantize",
  format: "cachetype cacheformat kvcachetype",
  store: "cachedir",
  signal: "abortsignal",
  onProgress: "progresscallback",
  normalize: "normalizeembeddings",
  pooling: "poolingmode",
};

/** `readFields` of options, whose error names ours where it is given under a usual name of another library. */
export function readOptions<T extends object, const Name extends string>(
  where: string,
  options: T,
  known: readonly Name[] & AllFieldsOf<T, Name>,
): T {
  const names: readonly string[] = known;
  for (const field of Object.keys(Object(options))) {
    if (names.includes(field)) continue;
    const plain = field.replace(/_/g, "").toLowerCase();
    const ours = names.find((each) => OTHER_NAMES[each]?.split(" ").includes(plain));
    if (ours !== undefined) throw new TypeError(`${where}: options expected ${ours} instead, got ${describe(field)}`);
  }
  return readFields(where, "options", options, known);
}

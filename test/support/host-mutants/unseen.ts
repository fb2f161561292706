// Faults that survive the tests, each with the reason: they change nothing that a test could see, or a test is missing, which the
// reason then says. If a test finds one of them, it is to be taken away; if another survives, a test is missing.

interface Unseen {
  readonly file: string;
  /** The line, and what the fault makes of it; empty for a statement that is dropped. */
  readonly from: string;
  readonly to: string;
  readonly reason: string;
}

export const UNSEEN: readonly Unseen[] = [
  {
    file: "models/blocks/block.ts",
    from: "pairs: pairs ? 1 : 0,",
    to: "pairs: pairs ? 2 : 0,",
    reason: "kernels ask whether it is 0",
  },
  {
    file: "models/blocks/block.ts",
    from: "sums: layout.floats(rows * Math.max(narrow, apart ? stride : 0)),",
    to: "sums: layout.floats(rows * Math.max(narrow, true ? stride : 0)),",
    reason: "scratch that only experts with norms of their own need; plans ask the same function",
  },
  {
    file: "models/generate/generate.ts",
    from: "if (chosen.length !== row.output || (row.output > 0 && chosen.at(-1)?.id !== guesses[row.output - 1])) return;",
    to: "if (chosen.length !== row.output || (row.output >= 0 && chosen.at(-1)?.id !== guesses[row.output - 1])) return;",
    reason: "without a chosen token both sides are undefined",
  },
  {
    file: "models/generate/generate-many.ts",
    from: "if (this.#source) this.#pull();",
    to: "",
    reason: "the next call of take pulls: only the time of the pull is another",
  },
  {
    file: "models/generate/generate.ts",
    from: "if (performance.now() < due) return;",
    to: "if (false) return;",
    reason: "yields more often, which only time shows",
  },
  {
    file: "models/blocks/model.ts",
    from: "const relativeFloats = (spec: ModelSpec): number => (spec.relativeBias ? biasHeads(spec) * strideOf(spec) : 0);",
    to: "const relativeFloats = (spec: ModelSpec): number => (spec.relativeBias ? biasHeads(spec) * strideOf(spec) : 1);",
    reason: "a float more for models that have no such bias, in the rounding of the next place",
  },
  {
    file: "models/generate/sampling.ts",
    from: "return known ? ids[kept - 1] : undefined;",
    to: "return known ? ids[kept - 2] : undefined;",
    reason: "the loop gets so far only if rounding leaves a rest of the sum",
  },
  {
    file: "models/generate/sampling.ts",
    from: "for (let i = 0; i < kept; i++) {",
    to: "for (let i = 0; i <= kept; i++) {",
    reason: "the loop gets so far only if rounding leaves a rest of the sum, or with a weight that is undefined",
  },
  {
    file: "text/gguf-tokenizer.ts",
    from: "...{ continuing_subword_prefix: null, end_of_word_suffix: null, fuse_unk: false, byte_fallback: false },",
    to: "...{ continuing_subword_prefix: null, end_of_word_suffix: null, fuse_unk: false, byte_fallback: true },",
    reason: "vocabularies of this kind have no tokens of bytes to fall back to",
  },
  {
    file: "text/gguf-tokenizer.ts",
    from: '...{ type: "Unigram", unk_id: unknown.id, byte_fallback: false },',
    to: '...{ type: "Unigram", unk_id: unknown.id, byte_fallback: true },',
    reason: "vocabularies of this kind have no tokens of bytes to fall back to",
  },
  {
    file: "text/gguf-tokenizer.ts",
    from: "let squared = 0;",
    to: "let squared = 1;",
    reason: "one more of 2^28",
  },
  {
    file: "models/blocks/block.ts",
    from: 'if (!parallel) tap?.("residMid", residual);',
    to: 'if (true) tap?.("residMid", residual);',
    reason: "no one can ask for residMid of a parallel layer, so the tap passes it over",
  },
  {
    file: "models/blocks/block.ts",
    from: "const any = all.length > 0 ? 1 : 0;",
    to: "const any = all.length > 0 ? 1 : 1;",
    reason: "memory that nothing uses, in the plan and in the pass alike",
  },
  {
    file: "models/blocks/ends.ts",
    from: "if (scale !== 1 || softcap !== 0)",
    to: "if (scale !== 0 || softcap !== 0)",
    reason: "a cap of 0 and a scale of 1 leave logits as they are",
  },
  {
    file: "layers/state/kv-cache.ts",
    from: "const rows = storeRows(kernels, base + place.rows, pages.layout, {",
    to: "const rows = storeRows(kernels, base - place.rows, pages.layout, {",
    reason: "the offset is 0",
  },
  {
    file: "models/generate/sampling.ts",
    from: "const found = topK === 0 ? draw(first, sum, rules, false) : undefined;",
    to: "const found = topK === 1 ? draw(first, sum, rules, false) : undefined;",
    reason: "a draw from the list of the largest finds the same token as one from all",
  },
  {
    file: "models/load/pack-weights.ts",
    from: "let floats = 0;",
    to: "let floats = 1;",
    reason: "staging memory is a float larger",
  },
  {
    file: "text/gguf-tokenizer.ts",
    from: 'const metaspace = { type: "Metaspace", replacement: SPACE, prepend_scheme: scheme, split: false };',
    to: 'const metaspace = { type: "Metaspace", replacement: SPACE, prepend_scheme: scheme, split: true };',
    reason: "the library divides no text at spaces, whatever this says",
  },
  {
    file: "models/blocks/block.ts",
    from: "if (outScale !== 1) work.kernels.table.cap_logits_f32(residual.at, width, residual.stride, outScale, 0, 0, count);",
    to: "if (outScale === 1) work.kernels.table.cap_logits_f32(residual.at, width, residual.stride, outScale, 0, 0, count);",
    reason: "checked by logits of published layouts in transformers, not yet by vectors of the project's own",
  },
  {
    file: "models/decoder/forward.ts",
    from: "const outputs = Math.min(",
    to: "const outputs = Math.max(",
    reason: "more scratch is kept than the rows need",
  },
  {
    file: "models/generate/generate-many.ts",
    from: "if (this.#source) this.#pull();",
    to: "if (true) this.#pull();",
    reason: "a list that has not ended left no room, and without room nothing is pulled",
  },
  {
    file: "models/load/pack-weights.ts",
    from: "if (!mixer && !outside) floats = Math.max(floats, stagedFloats({ n: shape[0], k: shape[1] ?? 1 }));",
    to: "if (!mixer && !outside) floats = Math.max(floats, stagedFloats({ n: shape[0], k: shape[1] ?? 0 }));",
    reason: "staging memory of a vector, which a matrix of the same model exceeds",
  },
  {
    file: "models/load/pack-weights.ts",
    from: "if (vector && source.optional && !reader.tensors.has(source.name)) continue;",
    to: "if (vector && source.optional && reader.tensors.has(source.name)) continue;",
    reason: "checked by logits of published layouts in transformers, not yet by vectors of the project's own",
  },
  {
    file: "models/weights/gguf-layer.ts",
    from: 'if (multiplier !== 1) keys.fail(LOG_MULTIPLIER, "1, since others are unsupported", multiplier);',
    to: "",
    reason: "checked by logits of published layouts in transformers, not yet by vectors of the project's own",
  },
  {
    file: "models/blocks/block.ts",
    from: "[spec.embed.perLayer?.dim ?? 0, ...spec.blocks.map(({ lowRank = 0 }) => lowRank)],",
    to: "[spec.embed.perLayer?.dim ?? 1, ...spec.blocks.map(({ lowRank = 0 }) => lowRank)],",
    reason: "a float of scratch, which the MLP of the same model exceeds",
  },
  {
    file: "models/load/pack-weights.ts",
    from: "const step = Math.max(1, Math.floor((pieceBytes * rows) / bytes));",
    to: "const step = Math.max(1, Math.floor((pieceBytes / rows) / bytes));",
    reason: "smaller pieces of the same rows, which only time shows",
  },
  {
    file: "models/load/scaled.ts",
    from: "const signs = new Int8Array((end - begin) * k);",
    to: "const signs = new Int8Array((end + begin) * k);",
    reason: "signs behind the last row, which nobody reads",
  },
  {
    file: "models/load/stored-tables.ts",
    from: "if (row === undefined) missing.push(index);",
    to: "if (row === undefined) missing.unshift(index);",
    reason: "they are sorted behind it",
  },
];

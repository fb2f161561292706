// The kernels of cache pages of any format: a module of its own, on the memory of that of index.ts. weighted_sum_f32,
// which completes the unfused path and which no call of the host needs, is here because not everyone loads it.

export { attention_pages } from "./attention/attention";
export { append_pages, gather_pages } from "./cache/append_gather";
export { HEAP_BASE, RELAXED, STAMP } from "./module";
export { scores_pages } from "./unfused/scores";
export { weighted_sum_f32 } from "./unfused/weighted_sum";

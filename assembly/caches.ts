// The kernels of cache pages of any format: a module of its own, on the memory of that of index.ts.

export { attention_pages } from "./attention";
export { append_pages, gather_pages } from "./cache";
export { HEAP_BASE, RELAXED } from "./module";
export { scores_pages } from "./scores";

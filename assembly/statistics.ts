// The kernel that measures attention as it attends: a module of its own, on the memory of that of index.ts.

export { attention_statistics } from "./attention/attention_statistics";
export { HEAP_BASE, RELAXED, STAMP } from "./module";

// The kernels of latent attention: a module of its own, on the memory of that of index.ts.

export { append_latents, gather_latents } from "./latent/append_gather";
export { attention_latents } from "./latent/attention";
export { HEAP_BASE, RELAXED, STAMP } from "./module";

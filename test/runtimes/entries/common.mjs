// What the suite gets besides the entry with `loadKernels` and what that loads, by the names of `runSuite`.

export * as configure from "headwise/configure";
export * as doctor from "headwise/doctor";
export * as inspect from "headwise/inspect";
export * as latents from "headwise/latent";
export * as models from "headwise/models";
export * as text from "headwise/text";
export * as weights from "headwise/weights";

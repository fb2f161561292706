/** Where a page finds the wasm of wllama. */
export const WASM = "/wllama.wasm";

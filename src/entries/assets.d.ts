// An import of `.wasm` depends on the entry: text if the bundle inlines it (scripts/inline-wasm.mjs), a module if the
// host loads it.
declare module "*.wasm" {
  const source: WebAssembly.Module | string;
  export default source;
}

// The bundled source of a worker.
declare module "*.txt" {
  const source: string;
  export default source;
}

// What a `.wasm` import is depends on the door: text where the bundle carries it (scripts/carry.mjs), a module where the host loads it.
declare module "*.wasm" {
  const source: WebAssembly.Module | string;
  export default source;
}

// The source of a worker, which the build has bundled.
declare module "*.txt" {
  const source: string;
  export default source;
}

// What a `.wasm` import is depends on the door: bytes where the bundle inlines them, a module where the host loads them.
declare module "*.wasm" {
  const source: WebAssembly.Module | BufferSource;
  export default source;
}

// The source of a worker, which the build has bundled.
declare module "*.txt" {
  const source: string;
  export default source;
}

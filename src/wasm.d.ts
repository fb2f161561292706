// What a `.wasm` import is depends on the door: bytes where the bundle inlines them, a module where the host loads them.
declare module "*.wasm" {
  const source: WebAssembly.Module | BufferSource;
  export default source;
}

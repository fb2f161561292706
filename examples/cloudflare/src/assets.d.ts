/** Modules made from files by the rules of wrangler.jsonc. */
declare module "*.gguf" {
  const bytes: ArrayBuffer;
  export default bytes;
}

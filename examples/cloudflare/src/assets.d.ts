/** Modules made from files by the rules of wrangler.jsonc. */
declare module "*.safetensors" {
  const bytes: ArrayBuffer;
  export default bytes;
}

/** What the rules of wrangler.jsonc make of files. */
declare module "*.safetensors" {
  const bytes: ArrayBuffer;
  export default bytes;
}

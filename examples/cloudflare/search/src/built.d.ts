/** What examples/search/index.ts makes, as wrangler bundles it. */
declare module "*/passages.json" {
  import type { PackedVectors } from "headwise/retrieval";
  export const shape: Omit<PackedVectors, "bytes">;
  export const passages: { title: string; url: string; text: string }[];
}
declare module "*/model.json" {
  const files: Record<string, string>;
  export default files;
}
declare module "*.safetensors" {
  const bytes: ArrayBuffer;
  export default bytes;
}
declare module "*.bin" {
  const bytes: ArrayBuffer;
  export default bytes;
}

import { createSha256, type Sha256, sha256 } from "../util/sha256.ts";
import { builtinModule } from "./builtin.ts";

/** SHA-256 by the host where it has it: browsers do on secure origins only. The bytes are copied before the promise is returned. */
export async function hostSha256(bytes: Uint8Array<ArrayBuffer>): Promise<Uint8Array<ArrayBuffer>> {
  const { subtle } = globalThis.crypto ?? {};
  return subtle ? new Uint8Array(await subtle.digest("SHA-256", bytes)) : sha256(bytes);
}

/** SHA-256 of bytes that come in parts: by the host where it has it, as Node, Deno and Bun do. */
export function hostHasher(): Sha256 {
  const crypto = builtinModule<{ createHash(name: "sha256"): Sha256 }>("node:crypto");
  return crypto?.createHash("sha256") ?? createSha256();
}

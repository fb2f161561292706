import { sha256 } from "../util/sha256.ts";

/** SHA-256 by the host where it has it: browsers do on secure origins only. The bytes are copied before the promise is returned. */
export async function hostSha256(bytes: Uint8Array<ArrayBuffer>): Promise<Uint8Array<ArrayBuffer>> {
  const { subtle } = globalThis.crypto ?? {};
  return subtle ? new Uint8Array(await subtle.digest("SHA-256", bytes)) : sha256(bytes);
}

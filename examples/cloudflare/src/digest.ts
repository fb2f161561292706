/** The SHA-256 of the bits of logits, 64 hexadecimal digits. */
export async function digestOf(logits: readonly Float32Array[]): Promise<string> {
  const bytes = new Uint8Array(logits.reduce((sum, { byteLength }) => sum + byteLength, 0));
  let at = 0;
  for (const { buffer, byteOffset, byteLength } of logits) {
    bytes.set(new Uint8Array(buffer, byteOffset, byteLength), at);
    at += byteLength;
  }
  const hash = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
  return Array.from(hash, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

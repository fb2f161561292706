/** A sequence of bytes. */
type Bytes = Uint8Array | readonly number[];

/** The concatenation of the parts. */
export function joinBytes(parts: readonly Bytes[]): Uint8Array<ArrayBuffer> {
  const whole = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}

/** An unsigned number of up to 32 bits as LEB128. */
export function leb(value: number): number[] {
  return value < 128 ? [value] : [(value & 127) | 128, ...leb(value >>> 7)];
}

interface FromBase64 {
  fromBase64?(text: string): Uint8Array<ArrayBuffer>;
}

/** Bytes of base64. */
export function decodeBase64(text: string): Uint8Array<ArrayBuffer> {
  const { fromBase64 } = Uint8Array as FromBase64;
  return fromBase64?.(text) ?? Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
}

/** Bytes as hexadecimal digits. */
export const toHex = (bytes: Uint8Array): string =>
  Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");

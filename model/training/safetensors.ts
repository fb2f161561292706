/** A tensor of 32-bit floats, row-major. */
export interface Tensor {
  readonly shape: readonly number[];
  readonly data: Float32Array;
}

interface Entry {
  dtype: string;
  shape: number[];
  data_offsets: [number, number];
}

/** 8 bytes header length, JSON header, data. The header ends in spaces so that the data begins 8-aligned. */
export function writeSafetensors(
  tensors: ReadonlyMap<string, Tensor>,
  metadata: Readonly<Record<string, string>>,
): Uint8Array {
  const header: Record<string, unknown> = { __metadata__: metadata };
  let end = 0;
  for (const [name, { shape, data }] of tensors) {
    header[name] = { dtype: "F32", shape, data_offsets: [end, end + data.byteLength] };
    end += data.byteLength;
  }
  const plain = JSON.stringify(header);
  const text = new TextEncoder().encode(plain.padEnd(Math.ceil(plain.length / 8) * 8));

  const bytes = new Uint8Array(8 + text.length + end);
  const view = new DataView(bytes.buffer);
  view.setBigUint64(0, BigInt(text.length), true);
  bytes.set(text, 8);
  let at = 8 + text.length;
  for (const { data } of tensors.values()) {
    for (const value of data) {
      view.setFloat32(at, value, true);
      at += 4;
    }
  }
  return bytes;
}

/** Reads what writeSafetensors writes; no more. */
export function readSafetensors(bytes: Uint8Array): Map<string, Tensor> {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const start = 8 + Number(view.getBigUint64(0, true));
  const header = JSON.parse(new TextDecoder().decode(bytes.subarray(8, start))) as Record<string, Entry>;
  const tensors = new Map<string, Tensor>();
  for (const [
    name,
    {
      dtype,
      shape,
      data_offsets: [from, to],
    },
  ] of Object.entries(header).filter(([key]) => key !== "__metadata__")) {
    if (dtype !== "F32") throw new TypeError(`readSafetensors: ${name} expected dtype F32, got ${dtype}`);
    const data = Float32Array.from({ length: (to - from) / 4 }, (_, i) => view.getFloat32(start + from + 4 * i, true));
    tensors.set(name, { shape, data });
  }
  return tensors;
}

// What the compiler must refuse about kernels. `tsc` checks this file; an unused @ts-expect-error fails it.

import type {
  AttentionShape,
  F32Ptr,
  KernelTable,
  PagesPtr,
  Pointer,
  Reference,
  U8Ptr,
} from "../../../src/wasm/abi.ts";

declare const table: KernelTable;
declare const f32: F32Ptr;
declare const u8: U8Ptr;
declare const pages: PagesPtr;
declare const shape: Pointer<AttentionShape>;
declare const twins: Reference;

export function calls(): void {
  table.attention_f32(f32, f32, pages, f32, shape, 0, 1);
  // @ts-expect-error bytes are not floats
  table.attention_f32(u8, f32, pages, f32, shape, 0, 1);
  // @ts-expect-error a bare number is no address
  table.attention_f32(4096, f32, pages, f32, shape, 0, 1);
  // @ts-expect-error a shape is not a table of pages
  table.attention_f32(f32, f32, shape, f32, pages, 0, 1);
  // @ts-expect-error an argument is missing
  table.attention_f32(f32, f32, pages, f32, shape, 0);

  twins.rms_norm_f32(new Float32Array(1), new Float32Array(1), new Float32Array(1), 1, 1, 0, 0, 1);
  // @ts-expect-error a twin takes arrays
  twins.rms_norm_f32(f32, f32, f32, 1, 1, 0, 0, 1);
}

const { rms_norm_f32: _missing, ...others } = twins;
// @ts-expect-error a kernel has no twin
export const incomplete: Reference = others;

// @ts-expect-error the twin's arguments are not the kernel's
export const wrong: Reference = { ...twins, rms_norm_f32: (out: Uint8Array) => out.fill(0) };

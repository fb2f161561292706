// What loadKernels takes as a module, and what it refuses.

import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { expect, test, vi } from "vitest";
import { STAMP } from "../../../assembly/stamp.ts";
import { leb } from "../../../src/base/util/bytes.ts";
import * as core from "../../../src/entries/core.ts";
import { HeadwiseError, type HeadwiseErrorCode } from "../../../src/entries/core.ts";
import { loadKernels } from "../../../src/entries/index.ts";
import { loadKernels as loadThreads } from "../../../src/entries/threads.ts";
import { loadKernels as loadThreadless } from "../../../src/entries/threads-single.ts";
import * as weightsapi from "../../../src/entries/weights.ts";

type Loose<T = unknown> = (...args: readonly unknown[]) => T;
type Row = readonly [call: () => unknown, kind: typeof TypeError | typeof RangeError | HeadwiseErrorCode, text: string];
const headwise = { ...core, ...weightsapi };
const bytesOf = (build: string) => readFileSync(new URL(`../../../build/${build}.wasm`, import.meta.url));

/** A module whose stamp is that of another version; nothing else changes. */
function withStamp(bytes: Buffer): Uint8Array<ArrayBuffer> {
  // The value of the exported global: i32.const and the number, whose last byte also holds the sign.
  const at = bytes.indexOf(Uint8Array.of(0x41, ...leb(STAMP).slice(0, -1)));
  expect(at).toBeGreaterThan(0);
  const changed = Uint8Array.from(bytes);
  changed[at + 1] = (bytes[at + 1] as number) ^ 1;
  return changed;
}

test("loadKernels refuses a module with the rule that it breaks", async () => {
  const foreign = [0, 97, 115, 109, 1, 0, 0, 0, 1, 4, 1, 96, 0, 0, 2, 7, 1, 1, 97, 1, 98, 0, 0];
  const rows: readonly (readonly [options: unknown, kind: Row[1], text: string])[] = [
    [null, TypeError, "options expected an object, got null"],
    [
      { thread: 2 },
      TypeError,
      'options expected only module, deterministic, threads, quantized, latent, models, statistics, got "thread"',
    ],
    [{ threads: 0 }, RangeError, 'threads expected "auto" or an integer from 1 to 64, got 0'],
    [{ threads: "all" }, RangeError, 'threads expected "auto" or an integer from 1 to 64, got "all"'],
    [{ threads: [2] }, TypeError, 'threads expected "auto" or an integer from 1 to 64, got Array'],
    [{ deterministic: 1 }, TypeError, "deterministic expected true or false, got 1"],
    [
      { module: "simd.wasm" },
      TypeError,
      'module expected WebAssembly.Module, its bytes, a Response or a URL, got "simd.wasm"',
    ],
    [
      { module: new Uint8Array([60, 33, 68, 79]) },
      "NOT_WASM",
      'module expected bytes that begin 00 61 73 6d, got 3c 21 44 4f ("<!DO")',
    ],
    [
      { module: bytesOf("simd").subarray(0, 1000) },
      "NOT_WASM",
      "module expected bytes that this engine accepts, got 1000 that it refuses: damaged, or for newer engines",
    ],
    ...[new Uint8Array(8), new DataView(new ArrayBuffer(8)), new ArrayBuffer(8)].map((module) => {
      const buffer = ArrayBuffer.isView(module) ? module.buffer : module;
      structuredClone(buffer, { transfer: [buffer] });
      return [
        { module },
        TypeError,
        "module expected WebAssembly.Module, its bytes, a Response or a URL, got a detached one",
      ] as const;
    }),
    [
      { module: Uint8Array.of(0, 97, 115, 109, 1, 0, 0, 0) },
      "ABI_MISMATCH",
      "module expected the module of floats, got one of another version or origin",
    ],
    [
      { module: bytesOf("weights-simd") },
      "ABI_MISMATCH",
      "module expected the module of floats, got the module of weights",
    ],
    [
      { module: bytesOf("caches-simd") },
      "ABI_MISMATCH",
      "module expected the module of floats, got the module of caches",
    ],
    [
      { module: withStamp(bytesOf("simd")) },
      "ABI_MISMATCH",
      "module expected the module of floats, got one of another version or origin",
    ],
    [
      { module: bytesOf("relaxed"), deterministic: true },
      RangeError,
      "deterministic expected the simd build as module, got the relaxed one",
    ],
    [
      { module: Uint8Array.from(foreign) },
      "ABI_MISMATCH",
      "module expected a module of this package, got one that does not accept its memory",
    ],
  ];
  for (const load of [loadKernels, headwise.loadKernels] as unknown as Loose<Promise<unknown>>[])
    for (const [options, kind, text] of rows) {
      const error = await load(options).catch((reason: unknown) => reason);
      expect((error as Error).message).toBe(`loadKernels: ${text}`);
      expect(error instanceof HeadwiseError ? error.code : (error as Error).constructor, text).toBe(kind);
    }
  await expect((headwise.loadKernels as Loose<Promise<unknown>>)()).rejects.toThrow(
    "loadKernels: options expected an object, got undefined",
  );
  await expect((headwise.loadKernels as Loose<Promise<unknown>>)({})).rejects.toThrow(
    "loadKernels: module expected WebAssembly.Module, its bytes, a Response or a URL, got undefined",
  );
});

test("loadKernels takes responses and URLs, and names what held no wasm", async () => {
  const { loadKernels: load } = core;
  const plain = (bytes: Uint8Array<ArrayBuffer>, status = 200) =>
    new Response(bytes, { status, headers: { "Content-Type": "text/html; charset=utf-8" } });
  const file = new URL("../../../build/simd.wasm", import.meta.url);
  for (const module of [plain(bytesOf("simd")), file, Promise.resolve(file), Promise.resolve(bytesOf("simd"))]) {
    const started = await load({ module });
    expect(started.build).toBe("simd");
    started.release();
  }
  const page = new TextEncoder().encode("<!doctype html><title>Not found</title>");
  await expect(load({ module: plain(page, 404) })).rejects.toMatchObject({
    code: "NOT_WASM",
    message:
      'loadKernels: module expected bytes that begin 00 61 73 6d, got 3c 21 64 6f 63 74 79 70 65 20 68 74 ("<!doctype ht") from a Response (status 404, text/html; charset=utf-8)',
  });
  const server = createServer((_request, response) => response.setHeader("Content-Type", "text/html").end(page));
  await new Promise<void>((listening) => server.listen(0, "127.0.0.1", listening));
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/simd.wasm`;
  try {
    const text = `("<!doctype ht") from ${url} (status 200, text/html)`;
    await expect(load({ module: new URL(url) })).rejects.toThrow(text);
    await expect(load({ module: fetch(url) })).rejects.toThrow(text);
  } finally {
    server.close();
    server.closeAllConnections();
  }
  for (const gone of [new URL(url), new URL("no-such.wasm", file)])
    await expect(load({ module: gone })).rejects.toMatchObject({
      code: "BAD_FILE",
      message: expect.stringContaining(`loadKernels: module expected a URL that can be read, got ${gone.href}: `),
    });
});

test("loadKernels names the response that broke off, was used before or never came", async () => {
  const { loadKernels: load } = core;
  const used = new Response(bytesOf("simd"), { headers: { "Content-Type": "application/wasm" } });
  await used.arrayBuffer();
  await expect(load({ module: used })).rejects.toMatchObject({
    code: "BAD_FILE",
    message: expect.stringMatching(
      /^loadKernels: module expected a Response that can be read, got one from a Response \(status 200, application\/wasm\): ./,
    ),
  });
  const server = createServer((_request, response) => {
    response.writeHead(200, { "Content-Length": 1000 }).write("\0asm", () => response.destroy());
  });
  await new Promise<void>((listening) => server.listen(0, "127.0.0.1", listening));
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/simd.wasm`;
  const broken = `loadKernels: module expected a Response that can be read, got one from ${url} (status 200, no content type): `;
  try {
    for (const module of [new URL(url), fetch(url)])
      await expect(load({ module })).rejects.toMatchObject({
        code: "BAD_FILE",
        message: expect.stringContaining(broken),
      });
  } finally {
    server.close();
    server.closeAllConnections();
  }
  await expect(load({ module: fetch(url) })).rejects.toMatchObject({
    code: "BAD_FILE",
    message: "loadKernels: module expected a promise that fulfils, got one rejected: fetch failed",
  });
});

test("options are checked before anything is fetched", async () => {
  const asked = vi.spyOn(globalThis, "fetch").mockRejectedValue(new Error("asked"));
  try {
    for (const load of [loadKernels, core.loadKernels, loadThreadless, loadThreads] as Loose<Promise<unknown>>[])
      await expect(load({ module: new URL("http://127.0.0.1/simd.wasm"), fast: true })).rejects.toThrow(
        /^loadKernels: options expected only module, .*, got "fast"$/,
      );
    expect(asked).not.toHaveBeenCalled();
  } finally {
    asked.mockRestore();
  }
});

test("loadKernels names what an engine has no memory for", async () => {
  const module = bytesOf("simd");
  const cause = new RangeError("could not allocate memory");
  const refuse = () => Promise.reject(cause);
  const faults = [
    ["compile", refuse, "to compile module"],
    ["instantiate", refuse, "to start module"],
    [
      "Memory",
      class {
        constructor() {
          throw cause;
        }
      },
      "for the kernels",
    ],
  ] as const;
  for (const [name, fault, what] of faults) {
    const { [name]: real } = WebAssembly;
    try {
      Object.assign(WebAssembly, { [name]: fault });
      await expect(core.loadKernels({ module })).rejects.toMatchObject({
        code: "OUT_OF_MEMORY",
        message: `loadKernels: this engine refused memory ${what}`,
        cause,
      });
    } finally {
      Object.assign(WebAssembly, { [name]: real });
    }
  }
});

test("loadKernels takes the kernels of whole decoders as models", async () => {
  const decoders = bytesOf("decoders-simd");
  for (const load of [loadKernels, loadThreads]) {
    using kernels = await load({ deterministic: true, threads: 1, models: { simd: { decoders } } });
    expect([kernels.models, kernels.latent, kernels.quantized]).toEqual([true, false, false]);
    expect(kernels.table.top_k_f32).toBeTypeOf("function");
  }
  using kernels = await loadKernels();
  expect(kernels.models).toBe(false);
  await expect(loadKernels({ deterministic: true, models: {} })).rejects.toMatchObject({
    code: "NO_MODELS",
    message: "loadKernels: models.simd expected the modules of the build that runs here, got undefined",
  });
  await expect(
    loadKernels({ deterministic: true, models: { simd: { decoders: bytesOf("latents-simd") } } }),
  ).rejects.toMatchObject({
    code: "ABI_MISMATCH",
    message: "loadKernels: models.simd.decoders expected the module of decoders, got the module of latents",
  });
});

test("loadKernels takes the kernels of statistics as statistics", async () => {
  const statistics = bytesOf("statistics-simd");
  for (const load of [loadKernels, loadThreads]) {
    using kernels = await load({ deterministic: true, threads: 1, statistics: { simd: { statistics } } });
    expect([kernels.statistics, kernels.models]).toEqual([true, false]);
    expect(kernels.table.attention_statistics).toBeTypeOf("function");
  }
  await expect(loadKernels({ deterministic: true, statistics: {} })).rejects.toMatchObject({
    code: "NO_STATISTICS",
    message: "loadKernels: statistics.simd expected the modules of the build that runs here, got undefined",
  });
});

test("options of loadKernels may inherit their fields", async () => {
  const options: { readonly deterministic: boolean; readonly threads: number } = Object.create({
    deterministic: true,
    threads: 1,
  });
  for (const load of [loadKernels, loadThreads, loadThreadless]) {
    using kernels = await load(options);
    expect([kernels.build, kernels.threads.requested]).toEqual(["simd", 1]);
  }
});

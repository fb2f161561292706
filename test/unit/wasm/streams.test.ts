// Bundles contain modules as streams of bytes of one kind; what is joined from them is the module.

import { readFileSync } from "node:fs";
import { deflateRawSync } from "node:zlib";
import { expect, test } from "vitest";
import { splitStreams } from "../../../scripts/split-streams.mjs";
import { leb } from "../../../src/util/bytes.ts";
import { joinStreams } from "../../../src/wasm/streams.ts";

const bytesOf = (name: string) => new Uint8Array(readFileSync(new URL(`../../../build/${name}.wasm`, import.meta.url)));
const NAMES = ["", "weights-", "caches-", "latents-", "decoders-"].flatMap((part) => [`${part}relaxed`, `${part}simd`]);

test.each(NAMES)("%s is joined byte for byte, and its streams are smaller", (name) => {
  const module = bytesOf(name);
  const streams = splitStreams(module);
  expect(Buffer.compare(joinStreams(streams), module)).toBe(0);
  expect(deflateRawSync(streams).length).toBeLessThan(0.93 * deflateRawSync(module).length);
});

test("a branch table, numbers of many bytes and constants are joined", () => {
  const code = [
    ...[0x20, 0, 0x0e, 3, 0, 1, 0x80, 0, 0], // br_table of three labels, one of them two bytes long
    ...[0x41, 0xff, 0xff, 0xff, 0xff, 0x07, 0x1a], // i32.const 2^31 - 1
    ...[0x43, 0, 0, 0x80, 0x3f, 0x1a, 0x44, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f, 0x1a],
    ...[0x02, 0x40, 0x0b, 0xfc, 0x0b, 0, 0xfc, 0x0a, 0, 0, 0x0b],
  ];
  const body = [1, 0x80, 1, 0x7f, ...code];
  const content = [1, ...leb(body.length), ...body];
  const header = [0, 0x61, 0x73, 0x6d, 1, 0, 0, 0];
  const module = Uint8Array.of(...header, 1, 4, 1, 0x60, 0, 0, 10, ...leb(content.length), ...content, 0, 2, 1, 0x61);
  expect(joinStreams(splitStreams(module))).toEqual(module);
});

test("what is not streams, or a part of them, is refused", () => {
  const streams = splitStreams(bytesOf("decoders-relaxed"));
  for (const length of [0, 1, 2, 50, streams.length - 1])
    expect(() => joinStreams(streams.subarray(0, length)), `${length} bytes`).toThrow(RangeError);
  expect(() => joinStreams(bytesOf("decoders-relaxed"))).toThrow(RangeError);
});

test("an opcode that kernels do not have is refused", () => {
  const header = [0, 0x61, 0x73, 0x6d, 1, 0, 0, 0];
  const module = Uint8Array.of(...header, 10, 6, 1, 4, 0, 0xd0, 0x70, 0x0b);
  expect(() => splitStreams(module)).toThrow("loadKernels: module expected instructions of kernels, got d0");
});

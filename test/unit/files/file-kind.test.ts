// Files of other formats, given to each reader: the error says what they look like and what to do.

import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import fc from "fast-check";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { readLayer } from "../../../src/cli/layer.ts";
import {
  openGguf,
  openSafetensors,
  readAttentionWeights,
  readSafetensors,
  writeSafetensors,
} from "../../../src/entries/weights.ts";
import { badFileOf } from "../../support/bad-file.ts";
import { Bytes, writeGguf } from "../../support/gguf-writer.ts";
import { randomCases } from "../../support/random-cases.ts";
import { calls } from "../../support/sampled.ts";

const ascii = (text: string) => new TextEncoder().encode(text);

/** A zip file whose first entry has this name: its local header and some bytes. */
const zip = (name: string) =>
  new Bytes()
    .raw(ascii("PK\x03\x04"))
    .raw(new Uint8Array(22))
    .raw([name.length, 0, 0, 0])
    .raw(ascii(name))
    .raw(new Uint8Array(200))
    .done();

const TORCH = "in Python, save its tensors with safetensors.torch.save_file";
const NUMPY = "in Python, save its arrays with safetensors.numpy.save_file";

const OTHERS: readonly (readonly [what: string, bytes: Uint8Array, got: string])[] = [
  ["a .pt file of PyTorch", zip("archive/data.pkl"), `a PyTorch file: ${TORCH}`],
  ["a .pt file of torch.jit", zip("model/version"), `a PyTorch file: ${TORCH}`],
  ["an .npz file", zip("arr_0.npy"), `a NumPy .npz file: ${NUMPY}`],
  ["a .zip file", zip("notes.txt"), "a zip file: unpack it"],
  ["an empty .zip file", ascii(`PK\x05\x06${"\0".repeat(18)}`), "a zip file: unpack it"],
  // The first bytes of torch.save without zip, and of pickle.dumps with protocols 4 and 5.
  [
    "a .bin file of PyTorch",
    Uint8Array.of(0x80, 2, 0x8a, 0x0a, 0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8),
    `a Python pickle, such as a PyTorch file: ${TORCH}`,
  ],
  [
    "a pickle of protocol 4",
    Uint8Array.of(0x80, 4, 0x95, 3, 0, 0, 0, 0, 0, 0, 0, 0x7d, 0x94, 0x2e),
    `a Python pickle, such as a PyTorch file: ${TORCH}`,
  ],
  [
    "a pickle of protocol 5",
    Uint8Array.of(0x80, 5, 0x7d, 0x94, 0x2e),
    `a Python pickle, such as a PyTorch file: ${TORCH}`,
  ],
  ["a .npy file", Uint8Array.of(0x93, ...ascii("NUMPY"), 1, 0, 118, 0), `a NumPy .npy file: ${NUMPY}`],
  ["an .h5 file", Uint8Array.of(0x89, ...ascii("HDF\r\n\x1a\n"), 0, 0, 0, 0), `an HDF5 file: ${NUMPY}`],
  [
    "an .onnx file",
    Uint8Array.of(8, 7, 0x12, 7, ...ascii("pytorch"), 0x1a, 5),
    "what looks like an ONNX model: in Python, save its initializers with safetensors.numpy.save_file",
  ],
  ["a .gz file", gzipSync(new Uint8Array(100)), "a gzip file: decompress it"],
  [
    "a Git LFS pointer",
    ascii("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 7\n"),
    "a Git LFS pointer, which stands for the file: fetch the file with git lfs pull",
  ],
  [
    "a web page",
    ascii("\n<!DOCTYPE html>\n<html><body>Sign in</body></html>"),
    "a web page: check the address that it was downloaded from",
  ],
  [
    "a web page without its type",
    ascii("<html><head></head></html>"),
    "a web page: check the address that it was downloaded from",
  ],
  [
    "an error of a storage server",
    ascii('<?xml version="1.0"?><Error><Code>AccessDenied</Code></Error>'),
    "an XML document: check the address that it was downloaded from",
  ],
  [
    "an index",
    ascii('{\n  "metadata": {\n    "total_size": 16060522496\n  },\n  "weight_map": {}}'),
    "the index of a model in several files: openSafetensorsIndex reads it",
  ],
  [
    "a config.json",
    ascii('{\n  "architectures": ["LlamaForCausalLM"]\n}'),
    "JSON text: give the file with the weights",
  ],
  ["an error as JSON", ascii('{"error":"Repository not found"}'), "JSON text: give the file with the weights"],
  ["an empty object", ascii("{}"), "JSON text: give the file with the weights"],
];
const GGUF = writeGguf({});
const HELP = "openSafetensors reads it, and loadModel its folder, or a list with its config.json";
const SAFETENSORS = writeSafetensors({ w: { data: new Float32Array(9), shape: [9] } });

describe("a file of another format is refused with what it looks like and what to do", () => {
  test.each([...OTHERS, ["a .gguf file", GGUF, "a GGUF file: openGguf reads it"] as const])(
    "%s as safetensors",
    async (_what, bytes, got) => {
      const rule = `expected a safetensors file, got ${got}`;
      expect(await badFileOf(() => readSafetensors(bytes))).toBe(`readSafetensors: bytes ${rule}`);
      expect(await badFileOf(() => readAttentionWeights(bytes))).toBe(`readAttentionWeights: bytes ${rule}`);
      expect(await badFileOf(() => openSafetensors(bytes))).toBe(`openSafetensors: source ${rule}`);
      expect(await badFileOf(() => openSafetensors(new Blob([bytes.slice()])))).toBe(`openSafetensors: source ${rule}`);
    },
  );

  test.each([...OTHERS, ["a .safetensors file", SAFETENSORS, `a safetensors file: ${HELP}`] as const])(
    "%s as GGUF",
    async (_what, bytes, got) => {
      expect(await badFileOf(() => openGguf(bytes))).toBe(`openGguf: source expected a GGUF file, got ${got}`);
    },
  );

  test("also where its first bytes are a possible length of a header", async () => {
    // Without a time, gzip begins with 1f 8b 08 00 00 00 00 00: a header of 559,903 bytes.
    const large = new Uint8Array(600_000);
    large.set([0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 2, 3]);
    expect(await badFileOf(() => readSafetensors(large))).toContain("got a gzip file: decompress it");
    expect(await badFileOf(() => openSafetensors(large))).toContain("got a gzip file: decompress it");
  });

  let folder = "";
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), "headwise-"));
  });
  afterAll(() => rm(folder, { recursive: true, force: true }));

  test("on the command line", async () => {
    const path = join(folder, "pytorch_model.bin");
    await writeFile(path, zip("archive/data.pkl"));
    await expect(readLayer("run", path, { layer: 0 })).rejects.toThrow(
      `${path}: source expected a safetensors file, got a PyTorch file: ${TORCH}`,
    );
  });

  test("damaged files of the expected format, and unknown ones, keep the rule that they break", async () => {
    expect(await badFileOf(() => readSafetensors(SAFETENSORS.slice(0, 20)))).toMatch(/header length expected <= 12/);
    expect(await badFileOf(() => readSafetensors(ascii("neither of them")))).toMatch(/the file begins with "neither "/);
    expect(await badFileOf(() => openGguf(ascii("neither of them")))).toBe(
      'openGguf: header expected to begin with GGUF, got "neit"',
    );
  });

  test("any bytes behind a beginning of these are BAD_FILE for both readers, in one line", async () => {
    const begins = [
      ...OTHERS.map(([, bytes]) => bytes),
      GGUF.subarray(0, 5),
      SAFETENSORS.subarray(0, 20),
      new Uint8Array(),
    ];
    const change = fc.tuple(fc.constantFrom(...begins), fc.nat(40), fc.uint8Array({ maxLength: 200 }));
    await fc.assert(
      fc.asyncProperty(change, async ([begin, length, rest]) => {
        const bytes = Uint8Array.of(...begin.subarray(0, length), ...rest);
        for (const read of [readSafetensors, openSafetensors, openGguf])
          expect(await badFileOf(() => read(bytes))).toMatch(/^\w+: .* expected .*, got [^\n]{1,200}$/);
      }),
      randomCases(calls(2000, 600), 14),
    );
  });
});

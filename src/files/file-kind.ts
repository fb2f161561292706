// What a file looks like that is not of the expected format, by its first bytes.

import { HeadwiseError, hexOf } from "../util/errors.ts";

/** How many bytes of the beginning show the kind: of a zip file, which needs the most, the name of the first entry. */
export const KIND_BYTES = 128;

/** The formats that are read, in the words of messages. */
const GGUF = "a GGUF file";
const SAFETENSORS = "a safetensors file";

const save = (what: string, from: string) => `in Python, save its ${what} with safetensors.${from}.save_file`;
const TORCH = save("tensors", "torch");
const NUMPY = save("arrays", "numpy");

/** Kinds of binary files: the first bytes in hex, the kind, and how to get a file that can be read. */
const BINARY: readonly (readonly [begins: RegExp, kind: string, remedy: string])[] = [
  [/^47475546/, GGUF, "openGguf reads it"],
  // A length below 2^32, and the brace of the header.
  [
    /^.{8}000000007b/,
    SAFETENSORS,
    "openSafetensors reads it, and loadModel its folder, or a list with its config.json",
  ],
  [/^504b0304.{52}(..)*?2e6e7079/, "a NumPy .npz file", NUMPY],
  // The first entry is NAME/data.pkl, or NAME/version in what torch.jit.save writes.
  [/^504b0304.{52}(..)*?2f(646174612e706b6c|76657273696f6e)/, "a PyTorch file", TORCH],
  [/^504b(0304|0506|0708)/, "a zip file", "unpack it"],
  [/^80(02|03|04|05)(?!00)/, "a Python pickle, such as a PyTorch file", TORCH],
  [/^934e554d5059/, "a NumPy .npy file", NUMPY],
  [/^894844460d0a1a0a/, "an HDF5 file", NUMPY],
  [/^1f8b08/, "a gzip file", "decompress it"],
  // Protobuf has no magic: the version of the format, up to 31, and then the name of the producer, a text or the graph.
  [/^08[01].(12|1a|22|28|32|3a|42)/, "what looks like an ONNX model", save("initializers", "numpy")],
];

/** Kinds of text. */
const TEXTS: readonly (readonly [begins: RegExp, kind: string, remedy: string])[] = [
  [/^version https:\/\/git-lfs/, "a Git LFS pointer, which stands for the file", "fetch the file with git lfs pull"],
  [/^\s*<(!doctype\s+html|html|head|body)/i, "a web page", "check the address that it was downloaded from"],
  [/^\s*<[?!a-z]/i, "an XML document", "check the address that it was downloaded from"],
  [/^\s*\{[\s\S]*"(weight_map|total_size)"/, "the index of a model in several files", "openSafetensorsIndex reads it"],
  [/^\s*[{[]\s*(["{}[\]\d]|$)/, "JSON text", "give the file with the weights"],
];

/**
 * The error for a file that is of another known kind than the expected one; undefined if nothing is known of it. `head` is
 * its beginning, as far as KIND_BYTES.
 */
export function otherKind(
  where: string,
  argument: string,
  expected: "a GGUF file" | "a safetensors file",
  head: Uint8Array,
): HeadwiseError | undefined {
  const begin = head.subarray(0, KIND_BYTES);
  const hex = hexOf(begin).replaceAll(" ", "");
  const text = String.fromCharCode(...begin);
  const found = BINARY.find(([begins]) => begins.test(hex)) ?? TEXTS.find(([begins]) => begins.test(text));
  if (found === undefined || found[1] === expected) return undefined;
  const [, kind, remedy] = found;
  return new HeadwiseError("BAD_FILE", `${where}: ${argument} expected ${expected}, got ${kind}: ${remedy}`);
}

import { expectWasm } from "./compile.ts";
import { HeadwiseError } from "./errors.ts";

interface FileSystem {
  readFile(path: URL): Promise<Uint8Array<ArrayBuffer>>;
}

interface Host {
  readonly process?: { getBuiltinModule?(name: string): FileSystem | undefined };
}

const tagOf = (value: unknown) => Object.prototype.toString.call(value);

/** Options with what their module brings: of a promise its value, of a URL or a Response the bytes, which are wasm. */
export async function openModule<Options extends { readonly module?: unknown }>(options: Options): Promise<Options> {
  const given = await options?.module;
  const isUrl = tagOf(given) === "[object URL]";
  if (!isUrl && tagOf(given) !== "[object Response]")
    return given === options?.module ? options : { ...options, module: given };
  const { bytes, from } = await readAnswer(isUrl ? await request(given as URL) : (given as Response));
  expectWasm("module", bytes, from);
  return { ...options, module: bytes };
}

/** The answer of a server, or a file's bytes as one on hosts that have files. */
async function request(url: URL): Promise<Response | Uint8Array<ArrayBuffer>> {
  const files = url.protocol === "file:" && (globalThis as Host).process?.getBuiltinModule?.("node:fs/promises");
  try {
    return files ? await files.readFile(url) : await fetch(url);
  } catch (cause) {
    const text = `loadKernels: module expected a URL that can be read, got ${url.href}: ${(cause as Error).message}`;
    throw new HeadwiseError("BAD_FILE", text, { cause });
  }
}

/** Bytes, and where they come from in words. */
async function readAnswer(answer: Response | Uint8Array<ArrayBuffer>) {
  if (answer instanceof Uint8Array) return { bytes: answer, from: "" };
  const kind = answer.headers.get("content-type") ?? "no content type";
  const from = ` from ${answer.url || "a Response"} (status ${answer.status}, ${kind})`;
  return { bytes: new Uint8Array(await answer.arrayBuffer()), from };
}

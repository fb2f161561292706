import { builtinModule } from "../base/platform/host.ts";
import { readFields } from "../base/util/arguments.ts";
import { HeadwiseError, tagOf } from "../base/util/errors.ts";
import { LOAD_OPTIONS } from "../wasm/kernels.ts";
import { expectWasm, type LoadOptions } from "../wasm/modules.ts";

interface FileSystem {
  readFile(path: URL): Promise<Uint8Array<ArrayBuffer>>;
}

/**
 * The options with `module` resolved: a promise replaced by its value, a URL or a Response by the bytes, which must be
 * wasm. Fields are checked and read first, so that nothing is fetched in vain.
 */
export async function openModule(given: LoadOptions): Promise<LoadOptions> {
  const options = readFields("loadKernels", "options", given, LOAD_OPTIONS);
  const module = await settled("a promise that fulfils, got one rejected", () => options.module);
  const isUrl = tagOf(module) === "URL";
  if (!isUrl && tagOf(module) !== "Response") return { ...options, module };
  const { bytes, from } = await readAnswer(isUrl ? await request(module as URL) : (module as Response));
  expectWasm("module", bytes, from);
  return { ...options, module: bytes };
}

/** The response of a server, or for `file:` the bytes of a file, on hosts that have files. */
async function request(url: URL): Promise<Response | Uint8Array<ArrayBuffer>> {
  const files = url.protocol === "file:" && builtinModule<FileSystem>("node:fs/promises");
  const read = (): Promise<Response | Uint8Array<ArrayBuffer>> => (files ? files.readFile(url) : fetch(url));
  return settled(`a URL that can be read, got ${url.href}`, read);
}

/** The value of a promise. If it rejects, throws BAD_FILE with `text` and the reason. */
async function settled<Value>(text: string, promised: () => Value | Promise<Value>): Promise<Value> {
  try {
    return await promised();
  } catch (cause) {
    const why = (cause as Error | undefined)?.message ?? String(cause);
    throw new HeadwiseError("BAD_FILE", `loadKernels: module expected ${text}: ${why}`, { cause });
  }
}

/** The bytes, and their origin as text. */
async function readAnswer(answer: Response | Uint8Array<ArrayBuffer>) {
  if (ArrayBuffer.isView(answer)) return { bytes: answer, from: "" };
  const kind = answer.headers.get("content-type") ?? "no content type";
  const from = ` from ${answer.url || "a Response"} (status ${answer.status}, ${kind})`;
  const buffer = await settled(`a Response that can be read, got one${from}`, () => answer.arrayBuffer());
  return { bytes: new Uint8Array(buffer), from };
}

// The session of the model that is loaded, and a copy of it that outlives the page: its cache pages in the browser's storage.

import { modelDigest } from "headwise/inspect";
import { type CachePage, createSession, exportSession, importSession, type Model, type Session } from "headwise/models";
import { FloatDigest } from "../../src/tools/diagnostics/self-test.ts";
import { loadedModel, onRelease, replaced } from "./load.ts";
import { keep, kept } from "./storage.ts";

let session: Session | undefined;
onRelease(release);

function release(): void {
  session?.release();
  session = undefined;
}

/** The session that goes on with the last text, or a new one of the loaded model. */
export function currentSession(): Session {
  session ??= createSession(loadedModel().model, { format: "f16" }); // half of float32
  return session;
}

interface Kept {
  /** Of the model that it belongs to. */
  readonly model: string;
  readonly ids: readonly number[];
  readonly pages: readonly (readonly CachePage[])[];
}

/** The model and the build of the kernels, whose bits a session goes on with. */
const identityOf = async (model: Model): Promise<string> => `${model.kernels.build} ${await modelDigest(model)}`;

/** Pages that came by http, but from this device, have no digests, and so keep no session. */
const hasDigests = (): boolean => globalThis.crypto?.subtle !== undefined;

/** Keeps a session under a name; the next visit goes on with the same bits. Returns a digest of all keys and values. */
export async function keepSession(name: string, own: Session): Promise<string> {
  const read = { ids: [...own.tokens], pages: exportSession(own) };
  if (hasDigests()) await keep(name, { model: await identityOf(loadedModel().model), ...read } satisfies Kept);
  const digest = new FloatDigest();
  for (const { bytes } of read.pages.flat())
    digest.add(new Float32Array(bytes.buffer, bytes.byteOffset, bytes.length >> 2));
  return digest.toString();
}

/** Fills a new session with what was kept under the name; says how many tokens it has. */
export async function restoreSession(name: string): Promise<number> {
  const { model } = loadedModel();
  const stored = (await kept(name)) as Kept | undefined;
  if (!stored || !hasDigests() || stored.model !== (await identityOf(model))) return 0;
  if (loadedModel().model !== model) throw replaced();
  release();
  try {
    importSession(currentSession(), stored.pages, stored.ids);
  } catch {
    // It belongs to another version: the text is read anew.
    return 0;
  }
  return stored.ids.length;
}

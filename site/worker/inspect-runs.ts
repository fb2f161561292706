// Passes of the inspector: their tokens, the weights of all heads and the logits, each with the session that goes on with it.

import { type Edit, forwardWith, type Site } from "headwise/inspect";
import { createSession, type Model, type Session } from "headwise/models";
import { addRows, type HeadMaps, mapOf } from "./inspect-maps.ts";
import { type Rules, ruledLayer } from "./inspect-rules.ts";
import { encodeText } from "./inspect-text.ts";
import type { CacheFormat } from "./inspect-trace.ts";
import { onRelease, type WeightFormat } from "./load.ts";

/** A change of what a head gives: `scale` times as much, or what it gives in another text. */
export type HeadEdit = { readonly layer: number; readonly head: number } & (
  | { readonly scale: number }
  | { readonly patch: true }
);

/** What differs from the plain run. */
export interface Changes {
  readonly edits: readonly HeadEdit[];
  /** The text that heads are patched from. */
  readonly from: string;
  /** Formats of matrices and of caches; "stored" and "f32" are those of the plain run. */
  readonly weights: "stored" | WeightFormat;
  readonly cache: CacheFormat;
  /** Rules of a layer that are not its own. */
  readonly rules?: Rules | undefined;
}

export const PLAIN: Changes = { edits: [], from: "", weights: "stored", cache: "f32" };

/** What a pass left. */
export interface Reading {
  readonly ids: readonly number[];
  /** By layer. The next reading of the same run may change them. */
  readonly patterns: readonly HeadMaps[];
  /** Of the last token. */
  readonly logits: Float32Array;
  /** Tokens that were read in this call; those before were known. */
  readonly read: number;
  /** Tokens of the text that were left out. */
  readonly cut: number;
}

interface Run {
  readonly model: Model;
  readonly session: Session;
  /** What was changed, as text. */
  readonly changes: string;
  reading: Reading;
}

const runs = new Map<"plain" | "edited", Run>();
onRelease(() => {
  release("plain");
  release("edited");
});

/** Ends a run. */
export function release(name: "plain" | "edited"): void {
  runs.get(name)?.session.release();
  runs.delete(name);
}

/** Reads a text as the run of a name, from where it differs from the last one. */
export function readText(name: "plain" | "edited", model: Model, text: string, given: Changes): Reading {
  const { edits, from, cache, rules } = given;
  const { ids, cut } = encodeText(text);
  const hasPatch = edits.some((edit) => "patch" in edit);
  const changes = JSON.stringify([edits, hasPatch ? from : "", cache, rules]);
  let run = runs.get(name);
  const last = run?.model === model && run.changes === changes ? run.reading.ids : [];
  let same = 0;
  while (same < last.length && last[same] === ids[same]) same++;
  if (run && same > 0 && same === last.length && same === ids.length) {
    run.reading = { ...run.reading, read: 0, cut };
    return run.reading;
  }
  // The logits are those of a token that is read; patches and rules have a row for each token of the text.
  same = hasPatch || rules ? 0 : Math.min(same, ids.length - 1);
  const made = editsOf(model, edits, ids, from);
  if (!run || same === 0 || !truncates(run.session, same)) {
    const ruled = rules && ruledLayer(model, ids, rules, { edits: made, cache });
    release(name);
    run = { model, session: createSession(model, { format: cache }), changes, reading: NOTHING };
    runs.set(name, run);
    run.reading = readOn(run, ids, 0, ruled ? [ruled.edit, ...made] : made, cut);
    if (rules && ruled) {
      const patterns = [...run.reading.patterns];
      patterns[rules.layer] = addRows(undefined, ruled.weights, 0);
      run.reading = { ...run.reading, patterns };
    }
    return run.reading;
  }
  run.reading = readOn(run, ids, same, made, cut);
  return run.reading;
}

const NOTHING: Reading = { ids: [], patterns: [], logits: new Float32Array(0), read: 0, cut: 0 };

/** Whether the session goes back to a length: those with windows have forgotten what lies before. */
function truncates(session: Session, length: number): boolean {
  try {
    session.truncate(length);
    return true;
  } catch {
    return false;
  }
}

/** Reads the tokens from `same` on, and puts their rows below those that were known. */
function readOn(
  { model, session, reading }: Run,
  ids: readonly number[],
  same: number,
  edits: readonly Edit[],
  cut: number,
): Reading {
  const layers = Array.from({ length: model.layers }, (_, layer) => layer);
  const { patterns, logits } = forwardWith(session, ids.slice(same), { patterns: layers, edits });
  const maps = patterns.map((rows, layer) => addRows(reading.patterns[layer], rows, same));
  return { ids, patterns: maps, logits, read: ids.length - same, cut };
}

/** Edits as the package takes them. */
function editsOf(model: Model, edits: readonly HeadEdit[], ids: readonly number[], from: string): Edit[] {
  const patches = edits.filter((edit) => "patch" in edit);
  const sites = patches.map(({ layer, head }) => ({ at: "z", layer, head }) as const);
  const rows = patches.length > 0 ? rowsOf(model, ids.length, from, sites) : [];
  return edits.map((edit): Edit => {
    const site = { at: "z", layer: edit.layer, head: edit.head } as const;
    if ("scale" in edit) return edit.scale === 0 ? { ...site, set: 0 } : { ...site, scale: edit.scale };
    return { ...site, set: rows[patches.indexOf(edit)] };
  });
}

/** What heads give in another text of as many tokens. */
function rowsOf(model: Model, count: number, from: string, capture: readonly Site[]) {
  const { ids } = encodeText(from);
  if (ids.length !== count)
    throw new Error(
      `Patching needs texts of the same length: the text has ${count} tokens, the other one ${ids.length}.`,
    );
  const session = createSession(model);
  try {
    return forwardWith(session, ids, { capture }).captured;
  } finally {
    session.release();
  }
}

/** A digest of the weights of all heads and the logits: two engines that show the same one show the same bits. */
export async function digestOf({ ids, patterns, logits }: Reading): Promise<string> {
  if (!globalThis.crypto?.subtle) return "none: this page did not come by https";
  const parts = await Promise.all(
    [...patterns.map((maps) => wholeOf(maps, ids.length)), logits].map((floats) =>
      crypto.subtle.digest("SHA-256", floats as Float32Array<ArrayBuffer>),
    ),
  );
  const whole = new Uint8Array(32 * parts.length);
  for (const [i, part] of parts.entries()) whole.set(new Uint8Array(part), 32 * i);
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", whole));
  return Array.from(digest.subarray(0, 8), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** [heads, n, n]. */
function wholeOf(maps: HeadMaps, n: number): Float32Array {
  const whole = new Float32Array(maps.heads * n * n);
  for (let head = 0; head < maps.heads; head++) whole.set(mapOf(maps, head, n), head * n * n);
  return whole;
}

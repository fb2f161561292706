import { expectInt } from "../../base/util/arguments.ts";
import { describe, underName } from "../../base/util/errors.ts";
import { expectPages } from "../../layers/attention/kv-state.ts";
import type { LayerState } from "../../layers/mixer/mixer.ts";
import { exportStates, fillState, RecurrentState } from "../../layers/recurrent/state.ts";
import { type CachePage, exportPages, fillCache } from "../../layers/state/export.ts";
import { readIds, type TokenIds } from "./forward.ts";
import { expectSession, expectUnused, type Session } from "./session.ts";

/** What has a list of pages of its own: the state of a layer, or of each of its mixers that lie side by side. */
function partsOf({ states }: Session): { readonly name: string; readonly state: LayerState }[] {
  return states.flatMap(({ parts }, layer) =>
    parts
      ? parts.map((state, mixer) => ({ name: `layer ${layer}, mixer ${mixer}`, state }))
      : { name: `layer ${layer}`, state: states[layer] as LayerState },
  );
}

/**
 * Copies the pages of all layers of a session, or only those that have changed since it held `since` tokens, so that a stored
 * copy can be updated with few pages. A page of a recurrent layer holds its state behind the page's last token; of those behind
 * full pages only some are kept, and the pages of others hold nothing. What the decoder of a model with two halves attends to is
 * not among them.
 * @param since Tokens that the stored copy holds. If the session was truncated after that copy was made, the shortest length
 * that it has had since. Default 0: all pages.
 * @returns A list for each layer with keys or a state of its own, or for each of its mixers that lie side by side: what `exportPages`
 * gives of a cache.
 * @throws TypeError or RangeError naming the argument. HeadwiseError `OUT_OF_MEMORY`, `RELEASED`, or `IN_USE` while an
 * asynchronous call or a step of a generation runs on the session.
 * @example
 * import { loadKernels } from "headwise";
 * import { createSession, forward, loadModel, models } from "headwise/models";
 * import { exportSession, importSession } from "headwise/models";
 * const kernels = await loadKernels({ models });
 * const model = await loadModel(kernels, "model");
 * const [session, copy] = [createSession(model, { maxSeqLen: 96 }), createSession(model, { maxSeqLen: 96 })];
 * const ids = [81, 90, 23, 0, 81, 90];
 * forward(session, ids);
 * importSession(copy, exportSession(session), ids); // two layers of one page
 * const [a, b] = [session, copy].map((each) => forward(each, [23]).logits);
 * console.log(copy.length, a?.every((logit, i) => Object.is(logit, b?.[i]))); // 7 true
 * kernels.release();
 */
export function exportSession(session: Session, since = 0): CachePage[][] {
  const where = "exportSession";
  expectSession(where, session);
  expectUnused(where, session);
  expectInt(where, "since", since, 0, session.length);
  const { length } = session;
  return partsOf(session).map(({ state }) => {
    if (state instanceof RecurrentState) return exportStates(where, state, length, since);
    return underName(where, () => exportPages(expectPages(where, state).cache, since));
  });
}

/**
 * Fills an empty session from pages that `exportSession` made, in this process or another, of a session of the same model, with the
 * same format. Later calls give the same bits as with the exported session.
 *
 * The header of each page is checked, also for how many tokens the page holds, but not the numbers after it: store pages where no
 * write is left half done, together with the model that they belong to and the tokens that they hold.
 * @param pages For each list of `exportSession` all pages that hold the tokens, in ascending order. Pages of iterables are read one
 * at a time, and those behind the last token are not read.
 * @param ids The tokens that the session has read then: all that were exported, or the first of them. More are refused, and with
 * recurrent layers all other numbers than those of full pages whose states were kept. Behind a generation these are
 * `session.length` tokens: its last one has not been read.
 * @throws TypeError or RangeError naming the argument, whatever `pages` throws, HeadwiseError `RELEASED`, or `IN_USE` while
 * another call uses the session. A session that was empty is then empty again.
 * @example
 * import { loadKernels } from "headwise";
 * import { createSession, forward, loadModel, models } from "headwise/models";
 * import { exportSession, importSession } from "headwise/models";
 * const kernels = await loadKernels({ models });
 * const model = await loadModel(kernels, "model");
 * const [session, fork] = [createSession(model, { maxSeqLen: 96 }), createSession(model, { maxSeqLen: 96 })];
 * forward(session, [81, 90, 23, 0]);
 * importSession(fork, exportSession(session), [81, 90]); // the first two of four tokens
 * console.log(fork.length); // 2
 * kernels.release();
 */
export function importSession(session: Session, pages: Iterable<Iterable<CachePage>>, ids: TokenIds): void {
  const where = "importSession";
  expectSession(where, session);
  const { states, model, maxSeqLen } = session;
  const parts = partsOf(session);
  for (const { state } of parts) if (!(state instanceof RecurrentState)) expectPages(where, state);
  // Reading the arguments may run code of the caller's, and so may reading pages.
  const layers = readLayers(where, pages, parts.length);
  const tokens = readIds(where, "ids", ids, model.vocabSize, maxSeqLen);
  expectSession(where, session);
  expectUnused(where, session);
  if (session.length > 0) throw new RangeError(`${where}: session expected one without tokens, got ${session.length}`);
  expectInt(where, "ids.length", tokens.length, 0, maxSeqLen);
  session.holds.count++;
  try {
    for (const [i, { name, state }] of parts.entries()) {
      const own = layers[i] as Iterable<CachePage>;
      const named = `${where}: ${name}`;
      if (state instanceof RecurrentState)
        fillState(named, state, own, tokens.length, () => expectSession(where, session));
      else fillCache(named, expectPages(where, state).cache, own, tokens.length, "ids.length");
    }
    expectSession(where, session);
    for (let i = 0; i < tokens.length; i++) session.tokens.push(tokens[i] as number);
  } catch (error) {
    if (!session.released && !model.kernels.released) for (const state of states) state.truncate(0);
    throw error;
  } finally {
    session.holds.count--;
  }
}

/** Reads the lists of pages of the `count` layers or mixers that keep a state, but none of the pages. */
function readLayers(where: string, pages: unknown, count: number): Iterable<CachePage>[] {
  const isIterable = typeof Object(pages)[Symbol.iterator] === "function" && typeof pages === "object";
  if (!isIterable) throw new TypeError(`${where}: pages expected the lists of exportSession, got ${describe(pages)}`);
  const layers: Iterable<CachePage>[] = [];
  for (const layer of pages as Iterable<Iterable<CachePage>>) if (layers.push(layer) > count) break;
  if (layers.length === count) return layers;
  const got = layers.length > count ? "more" : layers.length;
  throw new RangeError(`${where}: pages expected the ${count} lists of exportSession, got ${got}`);
}

// Text: a prompt that goes on, or an answer in a conversation. What the session has read already is not read again, so that after
// an edit only the text after it is.

import type { Session } from "headwise/models";
import {
  type ChatMessage,
  chat,
  type GenerateTextOptions,
  generateText,
  type TextEnd,
  type TextGeneration,
} from "headwise/text";
import type { Call } from "./call.ts";
import { loadedModel } from "./load.ts";
import { currentSession, keepSession, restoreSession } from "./sessions.ts";
import { recordTokens, type WrittenToken } from "./written-tokens.ts";

export interface WriteOptions {
  readonly maxTokens: number;
  readonly temperature: number;
  readonly seed: number;
}

/** How a text ended. */
export interface Written {
  /** "aborted" where the page asked for it. */
  readonly reason: TextEnd["reason"];
  /** Tokens that the session holds, and bytes of all memory of the kernels. */
  readonly length: number;
  readonly memoryBytes: number;
  /** A digest of all keys and values of the session. */
  readonly digest: string;
  /** Tokens that no report had. */
  readonly written: readonly WrittenToken[];
}

const KEPT = "conversation";

/** Continues a text. */
export function writeTask(
  { prompt, options }: { readonly prompt: string; readonly options: WriteOptions },
  call: Call,
) {
  return stream(call, options, (session, given) => generateText(session, loadedModel().tokenizer, prompt, given));
}

/** Answers the last message of a conversation, by the model's template. */
export async function chatTask(
  { messages, options }: { readonly messages: readonly ChatMessage[]; readonly options: WriteOptions },
  call: Call,
) {
  const library = await import("@huggingface/jinja");
  return stream(call, options, (session, given) =>
    chat(session, loadedModel().tokenizer, messages, { ...given, library }),
  );
}

/** Reports the pieces of a text as they come, and keeps the session after the last one. */
async function stream(
  { report, signal }: Call,
  options: WriteOptions,
  start: (session: Session, given: GenerateTextOptions) => TextGeneration,
): Promise<Written> {
  const session = currentSession();
  const recorder = recordTokens(loadedModel().tokenizer);
  const pieces = start(session, { ...options, logitsProcessors: [recorder.see], signal });
  let ids: readonly number[] = [];
  let first: { readonly length: number; readonly now: number } | undefined;
  let reason: Written["reason"] = "aborted";
  try {
    for (;;) {
      const { value, done } = await pieces.next();
      if (done) {
        reason = value.reason;
        ids = value.ids;
        break;
      }
      const [now, { length }] = [performance.now(), session];
      first ??= { length, now };
      // A piece may be several tokens, and the first one takes the time of the prompt.
      report({
        kind: "piece",
        text: value,
        tokens: length - first.length,
        ms: now - first.now,
        written: recorder.take(),
      });
    }
  } catch (error) {
    if (!signal.aborted) throw error;
  }
  const digest = await keepSession(KEPT, session);
  const { memoryBytes } = session.model.kernels;
  return { reason, length: session.length, memoryBytes, digest, written: recorder.end(ids) };
}

/** Goes on with the session that the last visit left; says how many tokens of it there are. */
export function restoreTask(): Promise<number> {
  return restoreSession(KEPT);
}

import type { Tokenizer } from "../../../src/entries/text.ts";
import { TINY, tinyFolder } from "../../support/tiny-models.ts";
import type { Context } from "../suite.ts";
import { expectEqual, expectTrue } from "./expect.ts";

const PROMPT = "5 34 63 25 54 16 45 7";
const numbers: Tokenizer = {
  encode: (text) => text.trim().split(" ").map(Number),
  decode: (ids) => ids.map((id) => ` ${id}`).join(""),
};

/** A model in one call, where the entry has it: its tokens are those of the parts, several answers at once, aborted, in a worker. */
export async function checkOpened({ headwise, models, exact, check }: Context): Promise<void> {
  const { openModel } = headwise;
  // Service workers have no import().
  if (openModel === undefined || "ServiceWorkerGlobalScope" in globalThis) return;
  const find = tinyFolder(TINY.llama);
  const file = (name: string) => new File([find(name) as Uint8Array<ArrayBuffer>], name);
  const files = ["config.json", "model.safetensors"].map(file);
  const options = { tokenizer: numbers, deterministic: true, threads: 1, cache: "f32", store: false } as const;

  await check("openModel: tokens are those of generate, also of several answers at once", async () => {
    const model = await models.loadModel(exact, find);
    const session = models.createSession(model, { maxSeqLen: 64 });
    const ids: number[] = [];
    for await (const { id } of models.generate(session, numbers.encode(PROMPT), { maxTokens: 20 })) ids.push(id);
    const opened = await openModel(find, options);
    const answers = [0, 1, 2].map(() => opened.text(PROMPT, { maxTokens: 20 }));
    for (const answer of answers) expectEqual("ids", (await answer.ids).join(), ids.join());
    const abort = new AbortController();
    const aborted = opened.text(PROMPT, { signal: abort.signal });
    for await (const _ of aborted) abort.abort();
    expectEqual("the end", (await aborted.end).reason, "aborted");
    expectTrue("what there is", numbers.decode(ids).startsWith(await aborted.text));
    for (const each of [opened, session, model]) each.release();
  });

  await check("openModel: in a worker tokens are the same, and errors have their codes", async () => {
    const there = await openModel(files, { ...options, worker: true }).catch((error) => {
      // Hosts without workers, and pages whose policy forbids workers of inlined source, say so.
      expectEqual("code", error.code, "WORKER_LOST");
      return undefined;
    });
    const { process } = globalThis as { readonly process?: { readonly versions?: Readonly<Record<string, string>> } };
    const { deno, bun } = process?.versions ?? {};
    expectTrue("Deno and Bun have workers", there !== undefined || (deno === undefined && bun === undefined));
    if (there === undefined) return;
    const here = await openModel(files, options);
    const sampled = { maxTokens: 20, temperature: 0.9, seed: 5 };
    const [own, other] = [here, there].map((model) => model.text(PROMPT, sampled));
    expectEqual("ids", (await other?.ids)?.join(), (await own?.ids)?.join());
    there.release();
    expectEqual("code", await there.countTokens(PROMPT).catch(({ code }) => code), "RELEASED");
    here.release();
  });
}

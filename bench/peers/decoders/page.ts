// The code of a page of its own. It posts the logits and its answer to the server that it comes from.

import type { LoadDecoder } from "./decoder.ts";
import { measureDecoder } from "./measure-decoder.ts";
import type { Task } from "./task.ts";

const post = (path: string, body: BufferSource | string) => fetch(path, { method: "POST", body });

export async function runPage(load: LoadDecoder): Promise<void> {
  try {
    const { request, vocabSize, effort } = (await (await fetch("/task")).json()) as Task;
    const loops = await (await fetch("/loops.wasm")).arrayBuffer();
    const { logits, ...answer } = await measureDecoder(load, request, vocabSize, effort, loops);
    await post("/logits", logits as Float32Array<ArrayBuffer>);
    await post("/answer", JSON.stringify({ answer }));
  } catch (error) {
    await post("/answer", JSON.stringify({ error: String(error) }));
  }
}

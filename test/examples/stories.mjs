// What the examples should say of the stories model: computed here by the packed package in Node on one thread. The model
// itself is checked by stories.test.ts; its sentences change when it is trained anew, so none stands here.

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

export const BEGINNING = "the cat sat on the mat because it was";

/** A Jinja template as models with conversations have it, of words that this model knows. */
const TEMPLATE = "{% for message in messages %}{{ bos_token }}{{ message.content }} .{% endfor %}";

/** The texts of the package installed in `root`, of its deterministic build or of the one that it selects on this machine. */
export async function createStories(root, deterministic) {
  const entry = (name) => import(pathToFileURL(join(root, `node_modules/headwise/dist/${name}.js`)));
  const [{ loadKernels }, { createSession, gguf, loadModel, models }, { quantized }, text] = await Promise.all(
    ["index", "models", "quantized", "text"].map(entry),
  );
  const folder = join(root, "model/stories");
  const model = await loadModel(await loadKernels({ deterministic, models, quantized }), folder);
  const tokenizer = await text.loadTokenizer(folder);
  const file = join(folder, "stories.gguf");
  const small = await loadModel(await loadKernels({ deterministic, models, quantized }), file, { gguf });
  const ofSmall = await text.loadTokenizer(file);
  /** The text by a session with a cache of the format that openModel chooses. */
  const whole = async (model, format, generate) => {
    using session = createSession(model, { format });
    return (await Array.fromAsync(generate(session))).join("");
  };
  return {
    tokenizer,
    /** The text behind a prompt. */
    tell: (prompt, options) => whole(model, "f16", (on) => text.generateText(on, tokenizer, prompt, options)),
    /** The same by the GGUF file. */
    tellByFile: (prompt) => whole(small, "q8", (on) => text.generateText(on, ofSmall, prompt)),
    /** The text behind a prompt, or the answer to it, by the bytes of a GGUF file. */
    async ofFile(bytes, prompt, { asChat = false } = {}) {
      using kernels = await loadKernels({ deterministic, models, quantized });
      const file = new Blob([bytes]);
      const own = await text.loadTokenizer(file);
      const messages = [{ role: "user", content: prompt }];
      return await whole(await loadModel(kernels, file, { gguf }), "q8", (on) =>
        asChat ? text.chat(on, own, messages) : text.generateText(on, own, prompt),
      );
    },
  };
}

/** The GGUF file of the model, and the same with a template in place of a text that no reader needs. */
export function readFiles(root) {
  const plain = readFileSync(join(root, "model/stories/stories.gguf"));
  const length = (bytes) => {
    const size = Buffer.alloc(8);
    size.writeBigUInt64LE(BigInt(bytes));
    return size;
  };
  const string = (text) => Buffer.concat([length(Buffer.byteLength(text)), Buffer.from(text)]);
  const old = string("tokenizer.huggingface.json");
  const at = plain.indexOf(old);
  const value = at + old.length + 4; // behind the type, which is that of a text
  const end = value + 8 + Number(plain.readBigUInt64LE(value));
  const key = string("tokenizer.chat_template");
  const room = end - value - 8 + old.length - key.length;
  const template = string(`${TEMPLATE}{#${".".repeat(room - TEMPLATE.length - 4)}#}`);
  const type = plain.subarray(value - 4, value);
  const chat = Buffer.concat([plain.subarray(0, at), key, type, template, plain.subarray(end)]);
  if (at < 0 || chat.length !== plain.length) throw new Error("stories.gguf expected tokenizer.huggingface.json");
  return { plain, chat };
}

// From nothing to the first word of the stories model, by openModel or by its parts: prints the milliseconds, and those of the processor.
// node first-word.mjs opened|parts

const file = new URL("../../model/stories/stories.gguf", import.meta.url);
const PROMPT = "the cat sat on the mat because it was";

async function opened() {
  const { openModel } = await import("headwise");
  const model = await openModel(file, { deterministic: true });
  for await (const piece of model.text(PROMPT, { maxTokens: 1 })) return piece;
}

/** The same by the functions of the entries. */
async function parts() {
  const [{ loadKernels }, { createSession, gguf, loadModel, models }, { quantized }, { generateText, loadTokenizer }] =
    await Promise.all([
      import("headwise/threads"),
      import("headwise/models"),
      import("headwise/quantized"),
      import("headwise/text"),
    ]);
  const kernels = await loadKernels({ deterministic: true, models, quantized });
  const [model, tokenizer] = await Promise.all([loadModel(kernels, file, { gguf }), loadTokenizer(file)]);
  const session = createSession(model, { format: "q8" });
  for await (const piece of generateText(session, tokenizer, PROMPT, { maxTokens: 1 })) return piece;
}

const began = performance.now();
const word = await { opened, parts }[process.argv[2]]();
const ms = performance.now() - began;
if (word.trim() !== "soft") throw new Error(`the first word expected soft, got ${word}`);
const { user, system } = process.cpuUsage();
console.log(JSON.stringify({ "first word": ms, processor: (user + system) / 1000 }));
process.exit();

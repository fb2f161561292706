// The page that writes: the text of Node, stop, a change, a reload, a conversation, another model at any time, a wrong file, and the
// keyboard alone.

import { mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { loadKernels } from "../../../dist/index.js";
import { forwardWith, nextTokens } from "../../../dist/inspect.js";
import { createSession, gguf, loadModel, models } from "../../../dist/models.js";
import { quantized } from "../../../dist/quantized.js";
import { generateText, loadTokenizer } from "../../../dist/text.js";
import { expect } from "../../examples/given.mjs";
import { textOf, visit } from "../../examples/pages.mjs";
import { holdTask } from "../engine-tasks.mjs";
import { ready } from "../every-page.mjs";
import { expectSentences, expectStops } from "../wrong-models.mjs";

const PROMPT = "the dog slept on the rug because it was";
const FOLDER = join(import.meta.dirname, "../../../model/stories");
const FILE = join(FOLDER, "stories.gguf");
/** The build that has the same bits in every engine, and the likeliest tokens. */
const VIEW = "#deterministic=yes&temperature=0&tokens=24";

/** What Node writes. */
async function expected(prompt, maxTokens) {
  const kernels = await loadKernels({ models, quantized, deterministic: true });
  const model = await loadModel(kernels, FILE, { gguf });
  const session = createSession(model, { format: "f16" });
  let text = prompt;
  for await (const piece of generateText(session, await loadTokenizer(FILE), prompt, { maxTokens, temperature: 0 }))
    text += piece;
  kernels.release();
  return text;
}

const textIn = (page) => page.$eval("#text", ({ value }) => value);
const setText = (page, text) => page.$eval("#text", (field, value) => Object.assign(field, { value }), text);
const idle = (page) => page.waitForFunction(() => !document.getElementById("go").disabled);

const statusIs = (page, wanted) =>
  page.waitForFunction((text) => document.getElementById("status").textContent === text, {}, wanted);
/** Changes an option of the page. */
const setOption = (page, id, value) =>
  page.$eval(
    `#${id}`,
    (input, given) => {
      input.value = given;
      input.dispatchEvent(new Event("change"));
    },
    value,
  );

/** Loads a model that answers: the one of the site, with a template of conversations. */
async function loadChat(page) {
  const template = join(mkdtempSync(join(tmpdir(), "headwise-chat-")), "tokenizer_config.json");
  const config = JSON.parse(readFileSync(join(FOLDER, "tokenizer_config.json"), "utf8"));
  const chat_template = "{% for message in messages %}{{ message.content }} {% endfor %}";
  writeFileSync(template, JSON.stringify({ ...config, chat_template }));
  await page.select("#model", "file");
  const files = ["config.json", "model.safetensors", "tokenizer.json"].map((name) => join(FOLDER, name));
  await (await page.$("#model-file")).uploadFile(...files, template);
  await page.waitForFunction(() => !document.getElementById("mode").hidden);
  await idle(page);
  await page.click("#mode [value=chat]");
}

const messagesIn = (page) => page.$$eval(".message p", (all) => all.map(({ textContent }) => textContent));

const open = (given, look, query = VIEW) =>
  visit(given.browser, `${given.url}docs.html`, async (page, errors) => {
    await page.evaluate(() => localStorage.clear());
    await page.goto(`${given.url}write.html${query}`);
    await ready(page);
    const found = await look(page, errors);
    expect("errors of the page", errors.join("; "), "");
    return found;
  });

export const scenarios = {
  "the text of Node": (given) =>
    open(given, async (page) => {
      await setText(page, PROMPT);
      await page.click("#go");
      await idle(page);
      const whole = await expected(PROMPT, 24);
      expect("the text", await textIn(page), whole);
      // A change in the middle: what is behind it is read again, with the text of a new session.
      const changed = `${whole.slice(0, 30)} the`;
      await setText(page, changed);
      await page.click("#go");
      await idle(page);
      expect("the text behind a change", await textIn(page), await expected(changed, 24));
      return JSON.stringify((await textIn(page)).slice(0, 60));
    }),
  "each token shows how likely it was, and what else might have come": (given) =>
    open(given, async (page) => {
      const kernels = await loadKernels({ models, quantized, deterministic: true });
      const model = await loadModel(kernels, FILE, { gguf });
      const tokenizer = await loadTokenizer(FILE);
      const session = createSession(model, { format: "f16" });
      const first = nextTokens(forwardWith(session, tokenizer.encode(PROMPT)).logits, 3);
      kernels.release();
      const word = ({ id }) => tokenizer.decode([id]).trim();
      const percent = ({ probability }) => `${(100 * probability).toFixed(probability < 0.0995 ? 1 : 0)}\u00a0%`;
      await setText(page, PROMPT);
      await page.click("#go");
      await idle(page);
      const whole = await expected(PROMPT, 24);
      const tokens = await page.$$eval(".written button", (all) => all.map((each) => each.textContent).join(""));
      expect("the tokens are the text", PROMPT + tokens, whole);
      expect("how many", (await page.$$(".written button")).length, 24);
      // By the keyboard: the first token, the next one, and back.
      await page.focus(".written button");
      for (const key of ["ArrowRight", "ArrowLeft"]) await page.keyboard.press(key);
      expect(
        "what is said of the first",
        await textOf(page, ".others p"),
        `“${word(first[0])}” had ${percent(first[0])}. Go on with another token instead:`,
      );
      expect("the likeliest other", await textOf(page, ".others button"), `${word(first[1])} ${percent(first[1])}`);
      await page.click(".others button");
      await idle(page);
      expect("the text from there", await textIn(page), await expected(`${PROMPT} ${word(first[1])}`, 24));
      // A change of the text leaves no tokens of another one.
      await page.type("#text", " the");
      expect("the tokens of a text that was changed", await page.$eval("#tokens-part", ({ hidden }) => hidden), true);
      return `${word(first[0])} or ${word(first[1])}`;
    }),
  "goes on after a reload": (given) =>
    open(given, async (page) => {
      await setText(page, PROMPT);
      await page.click("#go");
      await idle(page);
      const half = await textIn(page);
      await page.reload();
      await ready(page);
      expect("the text of the last visit", await textIn(page), half);
      expect("tokens that need not be read", await textOf(page, "#status"), /^Ready: \d+ tokens of the last visit/);
      await page.click("#go");
      await idle(page);
      expect("the text", await textIn(page), await expected(half, 24));
    }),
  "a link has the text": (given) =>
    open(given, async (page) => {
      await page.evaluate(() => {
        location.hash = "#deterministic=yes&temperature=0&tokens=3&text=the+dog+slept";
      });
      await page.waitForFunction(() => document.getElementById("text").value === "the dog slept");
      await ready(page);
      await page.click("#go");
      await idle(page);
      const written = await textIn(page);
      expect("the text", written, await expected("the dog slept", 3));
      await page.waitForFunction(
        (wanted) => new URLSearchParams(location.hash.slice(1)).get("text") === wanted,
        {},
        written,
      );
    }),
  "a link to a model of another host loads nothing from there before the visitor says so": async (given) => {
    let requests = 0;
    const server = createServer((_, response) => {
      requests++;
      response.writeHead(200, { "Access-Control-Allow-Origin": "*" }).end("no model");
    });
    await new Promise((done) => server.listen(0, "127.0.0.1", done));
    const host = `127.0.0.1:${server.address().port}`;
    const button = (page) => textOf(page, ".picker form button");
    const link = (url) => `${VIEW}&model=${encodeURIComponent(url)}`;
    try {
      await open(
        given,
        async (page, errors) => {
          expect(
            "the sentence",
            await textOf(page, ".picker [role=status]"),
            `This link names a model of ${host}. It is loaded from there when you choose so.`,
          );
          expect("the button", await button(page), `Load from ${host}`);
          expect("requests", requests, 0);
          await page.click(".picker form button");
          await page.waitForSelector(".picker .error");
          expect("the button behind it", await button(page), "Load");
          if (requests === 0) throw new Error("nothing was requested");
          errors.length = 0; // browsers report what is no model
        },
        link(`http://${host}/model.gguf`),
      );
    } finally {
      server.closeAllConnections();
      server.close();
    }
    // A model of the site's own origin is loaded by itself.
    await open(given, (page) => idle(page), link(`${given.url}models/stories/stories.gguf`));
    return host;
  },
  "a text and its options, by the keyboard alone": (given) =>
    open(given, async (page) => {
      await page.focus("#tokens");
      await page.keyboard.press("ArrowUp");
      await page.keyboard.press("Tab");
      await page.waitForFunction(() => location.hash.includes("tokens=25"));
      await setText(page, "");
      await page.type("#text", PROMPT);
      for (let back = 0; (await page.evaluate(() => document.activeElement.id)) !== "go"; back++) {
        if (back > 3) throw new Error("Tab does not lead from the text to the button");
        await page.keyboard.press("Tab");
      }
      await page.keyboard.press("Enter");
      await idle(page);
      expect("the text", await textIn(page), await expected(PROMPT, 25));
      expect("the digest", await textOf(page, "#digest"), /^[\da-f]{16}$/);
    }),
  "the same bits by a choice, by the keyboard alone": (given) =>
    open(
      given,
      async (page) => {
        const choose = async () => {
          await page.focus("#deterministic");
          await page.keyboard.press(" ");
          await idle(page);
          return textOf(page, ".picker [role=status]");
        };
        const digests = [];
        const before = await textOf(page, ".picker [role=status]");
        for (let round = 0; round < 2; round++) {
          expect("the kernels", await choose(), /; simd kernels/);
          await page.waitForFunction(() => location.hash.includes("deterministic=yes"));
          await setText(page, PROMPT);
          await page.click("#go");
          await idle(page);
          expect("the text", await textIn(page), await expected(PROMPT, 24));
          digests.push(await textOf(page, "#digest"));
          expect("the kernels of the choice taken back", await choose(), before);
        }
        expect("the digest of the second time", digests[1], digests[0]);
        return before;
      },
      "#temperature=0&tokens=24",
    ),
  "stops, by the keyboard alone": (given) =>
    open(
      given,
      async (page) => {
        // The focus goes from the button that starts to the one that stops, and back. A model that ends before the second key is
        // asked again.
        for (let round = 0; round < 5; round++) {
          await page.focus("#go");
          await page.keyboard.press("Enter");
          await page.keyboard.press("Enter");
          await idle(page);
          if ((await textOf(page, "#status")) === "Stopped.") break;
          await page.click("#new");
        }
        expect("the status", await textOf(page, "#status"), "Stopped.");
        expect("the focus", await page.evaluate(() => document.activeElement.id), "go");
      },
      "#tokens=4096&temperature=5",
    ),
  "a conversation, and words that stay": (given) =>
    open(given, async (page) => {
      await setText(page, PROMPT);
      await loadChat(page);
      expect("the message at first", await textIn(page), "");
      await page.click("#go");
      expect("the status", await textOf(page, "#status"), "There is no message to send.");
      await page.type("#text", "the cat");
      await setOption(page, "tokens", "4");
      expect("the message after another option", await textIn(page), "the cat");
      await page.click("#mode [value=text]");
      expect("the text", await textIn(page), PROMPT);
      await page.click("#mode [value=chat]");
      expect("the message after another mode", await textIn(page), "the cat");
      await page.click("#go");
      await idle(page);
      const [asked, answer] = await messagesIn(page);
      expect("what was asked", asked, "the cat");
      expect("an answer", answer.length > 0, true);
      expect(
        "whether the conversation is read aloud",
        await page.$eval("#conversation", (log) => log.ariaBusy),
        "false",
      );
      // Edited while the model answers, the message is in the field, and the answer nowhere.
      await setOption(page, "tokens", "4096");
      await page.evaluate(() => {
        document.getElementById("text").value = "the dog";
        document.getElementById("go").click();
        document.querySelectorAll(".message.user button")[1].click();
      });
      await idle(page);
      expect("the message to edit", await textIn(page), "the dog");
      expect("the messages before it", (await messagesIn(page)).join("|"), [asked, answer].join("|"));
      await page.waitForFunction(() => location.hash.includes("mode=chat")); // the address follows with a delay
      await page.reload();
      await ready(page);
      expect("the sentence after a file", await textOf(page, ".picker [role=status]"), /choose it again/);
      expect("the conversation of the last visit", (await messagesIn(page)).join("|"), [asked, answer].join("|"));
      expect("the message of the last visit", await textIn(page), "the dog");
    }),
  "a message without an answer goes back": (given) =>
    open(given, async (page) => {
      await loadChat(page);
      await page.type("#text", "the cat");
      await page.evaluate(() => {
        document.getElementById("go").click();
        document.getElementById("stop").click();
      });
      await statusIs(page, "Stopped.");
      expect("the message", await textIn(page), "the cat");
      expect("messages", (await messagesIn(page)).length, 0);
      await holdTask(page, "chat", 0, "nothing");
      await page.click("#go");
      await page.waitForSelector("#status.error");
      expect("the message after an error", await textIn(page), "the cat");
    }),
  "another mode ends what is written": (given) =>
    open(given, async (page) => {
      await loadChat(page);
      await page.click("#mode [value=text]");
      await setText(page, PROMPT);
      await setOption(page, "tokens", "4096");
      await page.evaluate(() => {
        document.getElementById("go").click();
        document.querySelector("#mode [value=chat]").click();
      });
      await statusIs(page, "Stopped.");
      expect("the message", await textIn(page), "");
      await page.click("#mode [value=text]");
      expect("the text", await textIn(page), PROMPT);
    }),
  "text that is typed stays without a change of focus": (given) =>
    open(given, async (page) => {
      await setText(page, "");
      await page.type("#text", PROMPT);
      await page.reload();
      await ready(page);
      expect("the text of the last visit", await textIn(page), PROMPT);
      // While the model writes, a key that starts it deletes nothing.
      await setText(page, `${PROMPT} soft. the dog`);
      await page.evaluate(() => {
        const field = document.getElementById("text");
        document.getElementById("go").click();
        field.setSelectionRange(3, 3);
        field.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter", ctrlKey: true, cancelable: true }));
      });
      await idle(page);
      expect("the text", (await textIn(page)).startsWith(`${PROMPT} soft. the dog`), true);
    }),
  "an empty number is refused": (given) =>
    open(given, async (page) => {
      await setOption(page, "tokens", "");
      await setOption(page, "seed", "3");
      await page.waitForFunction(() => location.hash.includes("seed=3"));
      expect("the tokens of the address", new URLSearchParams(new URL(page.url()).hash.slice(1)).get("tokens"), "24");
      expect("the tokens", await page.$eval("#tokens", ({ value }) => value), "24");
    }),
  "another model while one writes": (given) =>
    open(
      given,
      async (page) => {
        await page.evaluate(() => {
          globalThis.seen = [];
          const status = document.getElementById("status");
          new MutationObserver(() => seen.push(`${status.className}: ${status.textContent}`)).observe(status, {
            childList: true,
            attributes: true,
          });
          document.getElementById("go").click();
          document.getElementById("model").dispatchEvent(new Event("change"));
        });
        await page.waitForFunction(() => /^Ready/.test(document.getElementById("status").textContent));
        await idle(page);
        const errors = await page.evaluate(() => seen.filter((each) => each.startsWith("error")));
        expect("errors that were shown", errors.join("; "), "");
      },
      "#tokens=4096&temperature=5",
    ),
  "what was kept comes late, or not at all": (given) =>
    open(given, async (page, errors) => {
      await holdTask(page, "restore", 1000);
      await page.select("#model", "stories.gguf");
      await page.waitForFunction(() => /layers/.test(document.querySelector(".picker [role=status]").textContent));
      await page.select("#model", "url");
      await page.$eval("#model-url", (field, value) => Object.assign(field, { value }), `${given.url}nothing.gguf`);
      await page.$eval(".picker form", (form) => form.requestSubmit());
      await page.waitForSelector(".picker .error");
      await new Promise((done) => setTimeout(done, 1500));
      expect(
        "the status without a model",
        await textOf(page, "#status"),
        "There is no model: choose one, or load it again.",
      );
      expect("whether one can go on", await page.$eval("#go", ({ disabled }) => disabled), true);
      errors.length = 0; // browsers report the file that is not there
      await holdTask(page, "restore", 0, "nothing");
      await page.evaluate(() => delete document.body.dataset.ready);
      await page.select("#model", "stories.gguf");
      await ready(page);
      expect("the status", await textOf(page, "#status"), "Ready.");
    }),
  "words that the model does not know are named": (given) =>
    open(given, async (page) => {
      await page.$eval("#text", (field) => field.select());
      await page.type("#text", "the dragon sat on the sofa");
      const sentence = "The vocabulary lacks “dragon”: the model reads <unk> instead.";
      await page.waitForFunction((wanted) => document.getElementById("unknown").textContent === wanted, {}, sentence);
      await page.$eval("#text", (field) => field.select());
      await page.type("#text", "the dog sat");
      await page.waitForFunction(() => document.getElementById("unknown").textContent === "");
    }),
  "loading stops and begins again": (given) => open(given, (page, errors) => expectStops(page, errors)),
  "a wrong file and a wrong URL leave a sentence": (given) =>
    open(given, async (page, errors) => {
      await expectSentences(page, errors, given.url);
      await page.select("#model", "stories.gguf");
      await idle(page);
    }),
};

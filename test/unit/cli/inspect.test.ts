// `headwise inspect`, on the trained models of the repository: its figures are those of the library.

import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { inspectorAddress } from "../../../src/cli/inspect.ts";
import { loadKernels } from "../../../src/entries/index.ts";
import {
  captureRun,
  decodeRecord,
  detectHeads,
  encodeRecord,
  explainScore,
  forwardWith,
  modelDigest,
  replay,
  statistics,
} from "../../../src/entries/inspect.ts";
import { createSession, gguf, loadModel, type Model, models } from "../../../src/entries/models.ts";
import { quantized } from "../../../src/entries/quantized.ts";
import { loadTokenizer } from "../../../src/entries/text.ts";
import type { Kernels } from "../../../src/wasm/kernels.ts";
import { runCli, spawnCli } from "../../support/cli.ts";
import { HYBRIDS, TINY, tinyFolder } from "../../support/tiny-models.ts";
import { wordTokenizer } from "../../support/word-tokenizer.ts";

const INDUCTION = "model";
const STORIES = join("model", "stories", "stories.gguf");
const TEXT = "the cat sat on the mat because it was soft. what was soft? the";
/** Five characters, four times: each has an earlier place of itself at least 15 times. */
const IDS = Array.from({ length: 20 }, (_, i) => [81, 90, 23, 0, 5][i % 5] as number);

let kernels: Kernels;
let induction: Model;
let stories: Model;
let tokens: readonly number[];
let storyIds: (text: string) => readonly number[];
let wordOf: (id: number) => string;
beforeAll(async () => {
  kernels = await loadKernels({ models, quantized, statistics, deterministic: true });
  induction = await loadModel(kernels, INDUCTION);
  stories = await loadModel(kernels, STORIES, { gguf });
  const tokenizer = await loadTokenizer(STORIES);
  storyIds = (text) => tokenizer.encode(text);
  tokens = storyIds(TEXT);
  wordOf = (id) => tokenizer.decode([id], { keepSpecial: true });
});
afterAll(() => kernels.release());

/** Runs the command with the build that the library has here. */
// The kernels of statistics lie beside the built command line alone.
const run = (model: string, ...args: string[]) =>
  (args.includes("--statistics") ? spawnCli : runCli)(["inspect", model, ...args, "--deterministic"]);
const ofIds = (...args: string[]) => run(INDUCTION, "--ids", IDS.join(), ...args);
const ofText = (...args: string[]) => run(STORIES, TEXT, ...args);

/** The lines of a section that begins with `title`, up to an empty line. */
function section(stdout: string, title: string): string[] {
  const lines = stdout.split("\n");
  const from = lines.findIndex((line) => line.startsWith(title));
  expect(from, `a line that begins with ${title}`).toBeGreaterThanOrEqual(0);
  const end = lines.indexOf("", from);
  return lines.slice(from, end < 0 ? undefined : end);
}
const cellsOf = (line = "") => line.trim().split(/ {2,}/);

/** The fields of an address on the site. */
const fieldsOf = (address: string) => Object.fromEntries(new URLSearchParams(address.slice(address.indexOf("#") + 1)));

describe("heads", () => {
  test("have the kinds and scores of detectHeads, each kind in its turn", () => {
    const { status, stdout, stderr } = ofIds("--maps", "0");
    expect([status, stderr]).toEqual([0, ""]);
    const rows = section(stdout, "head  kind").slice(1).map(cellsOf);
    const want = detectHeads(induction, [IDS], { leastTokens: 8, copying: false }).map(
      ({ layer, head, kind, scores }) => {
        const { score, baseline, tokens: count } = scores[kind] as (typeof scores)[string];
        return [`${layer}.${head}`, kind, score.toFixed(2), baseline.toFixed(2), `${count}`];
      },
    );
    expect(rows.toSorted()).toEqual(want.toSorted());
    const kinds = rows.map(([, kind]) => kind);
    expect([...new Set(kinds)]).toEqual(["previous", "induction", "current"]);
    expect(kinds).toEqual([...kinds].sort((a, b) => kinds.indexOf(a) - kinds.indexOf(b)));
    expect(stdout).not.toContain("too short");
  });

  test("that the text is too short for are mixed, with the pattern that is nearest, and named below", () => {
    const { stdout } = ofText("--maps", "0");
    const rows = section(stdout, "head  kind").slice(1).map(cellsOf);
    expect(rows.find(([name]) => name === "1.4")?.slice(1)).toEqual(["mixed, nearest induction", "0.80", "0.11", "4"]);
    expect(stdout).toContain(
      "The text is too short to say which heads are duplicate (4) or induction (4): a kind needs 8 tokens that have anywhere to look.",
    );
    expect(run(STORIES, "the cat", "--maps", "0").stdout).toContain("The text is too short to say what heads do:");
  });

  test("with --statistics have means of what forwardWith measures", () => {
    const rows = section(ofIds("--statistics", "--maps", "0").stdout, "head  kind")
      .slice(1)
      .map(cellsOf);
    using session = createSession(induction, { maxSeqLen: IDS.length });
    const measured = forwardWith(session, IDS, { statistics: { first: 1 } }).statistics;
    for (const [name = "", ...cells] of rows) {
      const [layer, head] = name.split(".").map(Number) as [number, number];
      const { lse, entropy, topWeights, firstMass, distance } = measured[layer] as (typeof measured)[number];
      const means = [lse, entropy, topWeights, firstMass, distance].map(({ data }) => {
        const own = data.subarray(head * IDS.length, (head + 1) * IDS.length);
        return own.reduce((sum, value) => sum + value, 0) / IDS.length;
      });
      expect(cells.slice(4)).toEqual(means.map((mean) => mean.toFixed(2)));
    }
  });
});

test("--pair names the heads that look from one word to the other, as detectHeads does for a labelled text", () => {
  const text = "anna put the kite in the basket. where was the kite? in the";
  const { stdout } = run(STORIES, text, "--pair", "15,7", "--maps", "0");
  const rows = section(stdout, "head  kind").slice(1).map(cellsOf);
  expect(rows.filter(([, kind]) => kind === "name mover").map(([head]) => head)).toEqual(
    detectHeads(stories, [{ tokens: storyIds(text), pairs: [{ query: 15, key: 7 }] }], { copying: false })
      .filter(({ kind }) => kind === "name mover")
      .sort((a, b) => b.scores.reference!.score - a.scores.reference!.score)
      .map(({ layer, head }) => `${layer}.${head}`),
  );
  expect(rows[0]?.[1]).toBe("name mover");
  expect(run(STORIES, text, "--pair", "7,15")).toMatchObject({
    status: 2,
    stderr: expect.stringContaining("inspect: --pair KEY expected an integer from 0 to 7, got 15"),
  });
});

test("words that the vocabulary lacks are counted on stderr", () => {
  const { status, stderr } = run(STORIES, "the throne sat on the mat", "--maps", "0");
  expect([status, stderr]).toEqual([
    0,
    "headwise inspect: 1 token of the text is <unk>: the vocabulary lacks the word\n",
  ]);
});

test("the words of a text have their positions, in lines of the width", () => {
  const { stdout } = ofText("--width", "40", "--maps", "0");
  const lines = section(stdout, "0 <s>");
  expect(lines.join("  ")).toBe(tokens.map((id, i) => `${i} ${wordOf(id)}`).join("  "));
  expect(lines.length).toBeGreaterThan(2);
  expect(Math.max(...lines.map(({ length }) => length))).toBeLessThanOrEqual(40);
});

describe("maps", () => {
  /** The weights that the library gives, as characters. */
  const charactersOf = (row: Float32Array) =>
    Array.from(row, (weight) => " .:-=+*#%@"[Math.min(9, Math.floor(weight * 10))])
      .join("")
      .trimEnd();

  test("show the weights of forwardWith, by default of the strongest head of each kind", () => {
    const { stdout } = ofIds();
    using session = createSession(induction, { maxSeqLen: IDS.length });
    const { patterns } = forwardWith(session, IDS, { patterns: [0, 1] });
    const titles = stdout.split("\n").filter((line) => /^head \d/.test(line));
    expect(titles.map((title) => title.split(": ")[1])).toEqual(["previous", "induction", "current"]);
    for (const title of titles) {
      const [layer, head] = (/\d\.\d/.exec(title)?.[0] ?? "").split(".").map(Number) as [number, number];
      const [, , , ...rows] = section(stdout, title);
      for (const [i, row] of rows.entries()) {
        const at = (head * IDS.length + i) * IDS.length;
        const weights = patterns[layer]!.data.subarray(at, at + i + 1);
        expect(row).toBe(`${String(i).padStart(2)} ${String(IDS[i]).padEnd(2)} ${charactersOf(weights)}`.trimEnd());
      }
      expect(rows.length).toBe(IDS.length);
    }
  });

  test("of a layer, or of one head of it", () => {
    const titlesOf = (...args: string[]) => ofIds(...args).stdout.match(/^head \d\.\d/gm);
    expect(titlesOf("--layer", "1")).toEqual(["head 1.0", "head 1.1", "head 1.2", "head 1.3"]);
    expect(titlesOf("--layer", "1", "--head", "2")).toEqual(["head 1.2"]);
    expect(titlesOf("--maps", "5")?.length).toBe(5);
    expect(titlesOf("--maps", "0")).toBe(null);
  });

  test("that are too wide have the tokens that fit, with a sentence, and --from shows the others", () => {
    const narrow = ofIds("--layer", "0", "--head", "0", "--width", "20");
    const [, , ...map] = section(narrow.stdout, "head 0.0");
    expect(Math.max(...map.map(({ length }) => length))).toBe(20);
    const sentence =
      "Maps have the tokens 0 to 13 of 20, as many as 20 columns have room for. --from 14 shows the next ones.";
    expect(narrow.stdout).toContain(sentence);
    const rest = ofIds("--layer", "0", "--head", "0", "--width", "20", "--from", "14").stdout;
    const whole = ofIds("--layer", "0", "--head", "0", "--width", "60").stdout;
    expect(whole).not.toContain("Maps have");
    expect(rest).toContain("Maps have the tokens 14 to 19 of 20, as many as 20 columns have room for.\n");
    const cells = (stdout: string) => section(stdout, "head 0.0").slice(-6);
    expect(cells(rest)).toEqual(cells(whole).map((line) => (line.slice(0, 6) + line.slice(6 + 14)).trimEnd()));
  });

  test("have colours if they are asked for, and none in a pipe or with --colour never", () => {
    const coloured = (args: string[], env = {}) =>
      spawnCli(["inspect", INDUCTION, "--ids", "81,90,81", "--maps", "1", ...args], [], { COLORTERM: "", ...env })
        .stdout;
    const truecolor = { COLORTERM: "truecolor" };
    expect(coloured(["--colour", "always"], truecolor)).toContain("\x1b[38;2;");
    expect(coloured(["--colour", "always"])).toContain("\x1b[38;5;");
    for (const plain of [coloured([], truecolor), coloured(["--colour", "never"], truecolor)])
      expect(plain).not.toContain("\x1b");
  });
});

test("--why has the score of explainScore and the largest parts of both tokens", () => {
  const { stdout } = ofText("--why", "16,6", "--layer", "1", "--head", "4");
  using session = createSession(stories, { maxSeqLen: tokens.length });
  using captured = captureRun(session, tokens);
  const why = explainScore(captured, { layer: 1, head: 4, query: 16, key: 6 });
  expect(stdout).toContain(`head 1.4 at 16 "the" gives 6 "mat" the score ${why.score.toFixed(2)}, before the softmax.`);
  const rows = section(stdout, "what wrote to the key").slice(1).map(cellsOf);
  const largest = Math.max(...why.byKey.map(Math.abs));
  const at = why.byKey.findIndex((part) => Math.abs(part) === largest);
  expect(why.components.key[at]).toEqual({ kind: "mlp", layer: 0 });
  expect(rows[0]).toEqual(["mlp 0", why.byKey[at]!.toFixed(2)]);
  expect(rows.reduce((sum, [, part]) => sum + Number(part), 0)).toBeCloseTo(why.qk, 1);
});

test("--without has what comes next with and without heads, as forwardWith gives it", () => {
  const probabilities = (edits: readonly { at: "z"; layer: number; head: number; set: number }[]) => {
    using session = createSession(stories, { maxSeqLen: tokens.length });
    const { logits } = forwardWith(session, tokens, { edits });
    const most = Math.max(...logits);
    const shares = logits.map((logit) => Math.exp(logit - most));
    const sum = shares.reduce((a, b) => a + b);
    return shares.map((share) => share / sum);
  };
  const heads = [0, 1, 2, 3, 4, 5, 6].map((head) => ({ at: "z", layer: 1, head, set: 0 }) as const);
  const [plain, ablated] = [probabilities([]), probabilities(heads)];
  const { stdout } = ofText("--next", "2", "--without", heads.map(({ head }) => `1.${head}`).join(), "--maps", "0");
  const [title, ...rows] = section(stdout, "next").map(cellsOf);
  expect(title).toEqual(["next", "id", "probability", "without 7 heads"]);
  expect(rows.map(([word]) => word)).toEqual(expect.arrayContaining(["mat", "rug"]));
  for (const [word, id, ...shares] of rows) {
    expect(word).toBe(wordOf(Number(id)));
    const want = [plain, ablated].map((list) => 100 * (list[Number(id)] as number));
    for (const [i, share] of shares.entries())
      expect(Math.abs(Number.parseFloat(share) - want[i]!)).toBeLessThan(0.0051);
  }
});

describe("--json", () => {
  test("has the heads of detectHeads, and records that replay to the same bits", async () => {
    const result = JSON.parse(ofText("--json", "--layer", "1", "--head", "4", "--why", "16,6", "--next", "1").stdout);
    expect(result).toMatchObject({ type: "llama", layers: 4, build: "simd", text: TEXT, ids: tokens });
    expect(result.digest).toBe(await modelDigest(stories));
    expect(result.words).toEqual(tokens.map(wordOf));
    const heads = detectHeads(stories, [tokens], { leastTokens: 8, copying: false });
    const found = result.heads.find((each: { layer: number; head: number }) => each.layer === 1 && each.head === 4);
    expect(found).toEqual({ ...heads[12], nearest: "induction" });
    expect(result.next).toEqual([{ id: tokens[6], word: "mat", probability: expect.closeTo(0.998, 2) }]);
    expect(result.maps).toEqual([{ layer: 1, head: 4, weights: expect.any(Array) }]);
    expect(result.maps[0].weights.map((row: number[]) => row.length)).toEqual(tokens.map((_, i) => i + 1));
    expect(result.why.score).toBeCloseTo(11.87, 1);
    const names = ["detectHeads", "forward", "forward", "explainScore"];
    expect(result.records.map((record: { inspect: string }) => record.inspect)).toEqual(names);
    for (const { link, ...record } of result.records) {
      const decoded = decodeRecord(link);
      expect(decoded.results).toBe(record.results);
      expect((await replay(stories, decoded)).same).toBe(true);
    }
  });

  test("has the same links as --link prints", () => {
    const { page, records } = JSON.parse(ofText("--json").stdout);
    const { stdout } = ofText("--link", "--maps", "0");
    const how = `The page is in the folder of the site, which npm run site makes in headwise's repository.
headwise inspect MODEL --replay LINK repeats a result.`;
    expect(stdout.endsWith(`\n\npage  ${page}\ndetectHeads  ${records[0].link}\n\n${how}\n`)).toBe(true);
    // Of the first map its head, and nothing else.
    const fields = fieldsOf(JSON.parse(ofText("--json", "--maps", "1").stdout).page);
    expect(Object.keys(fields)).toEqual(["text", "layer", "head", "deterministic"]);
    expect(JSON.parse(ofIds("--json").stdout)).not.toHaveProperty("page");
  });
});

describe("--replay", () => {
  let [link, results] = ["", ""];
  beforeAll(() => {
    const { stdout } = runCli(["inspect", INDUCTION, "--ids", "81,90,81,90", "--weights", "q8", "--json"]);
    [{ link, results }] = JSON.parse(stdout).records;
  });

  test("repeats a link in its formats and build: the same bits", () => {
    const { status, stdout } = runCli(["inspect", INDUCTION, "--replay", link]);
    expect([status, stdout]).toEqual([0, `detectHeads  the same bits ${results}\n`]);
    const json = JSON.parse(runCli(["inspect", INDUCTION, "--replay", link, "--json", "--threads", "2"]).stdout);
    expect(json).toEqual({ inspect: "detectHeads", same: true, recorded: results, found: results });
  });

  test("says so, and exits with 1, if a bit differs", () => {
    const other = encodeRecord({ ...decodeRecord(link), results: "0".repeat(64) });
    const { status, stdout } = runCli(["inspect", INDUCTION, "--replay", other]);
    const text = `detectHeads  other bits than recorded: expected ${"0".repeat(64)}, got ${results}\n`;
    expect([status, stdout]).toEqual([1, text]);
  });

  test.each([
    ["a text", [INDUCTION, "a text"], /--replay expected a model alone beside it, got a text/],
    ["another option", [INDUCTION, "--next", "3"], /--replay expected a model alone beside it, got --next/],
    ["another model", [STORIES], /replay: record\.\w+ expected .* that of the model given/],
    ["another format", [INDUCTION, "--weights", "f32"], /replay: record\.formats expected "f32".*got "q8"/],
  ])("refuses %s", (_, args, message) => {
    const { status, stderr } = runCli(["inspect", ...args, "--replay", link]);
    expect(status).toBe(2);
    expect(stderr).toMatch(message);
  });

  test("refuses what is no link", () => {
    const { status, stderr } = runCli(["inspect", INDUCTION, "--replay", "abc"]);
    expect(status).toBe(2);
    expect(stderr).toMatch(/--replay expected a link that --link prints for a result, got abc/);
  });
});

describe("the address on the site", () => {
  const view: Parameters<typeof inspectorAddress>[0] = {
    ...{ path: STORIES, text: "a cat & a dog?", place: { layer: 1, head: 4 } },
    work: {
      why: { query: 5, key: 3 },
      without: [
        { layer: 1, head: 0 },
        { layer: 1, head: 4 },
      ],
    },
    weights: "q8",
    cache: "q4",
    deterministic: true,
  };

  test("has the text, head, cell, edits and formats; a model that has a URL, and no path of this machine", () => {
    const fields = {
      ...{ text: "a cat & a dog?", layer: "1", head: "4", query: "5", key: "3", edits: "1.0*0,1.4*0" },
      ...{ weights: "q8", cache: "q4", deterministic: "yes" },
    };
    expect(fieldsOf(inspectorAddress(view))).toEqual(fields);
    const path = "https://example.com/model.gguf";
    expect(fieldsOf(inspectorAddress({ ...view, path }))).toEqual({ ...fields, model: path });
    const plain = { ...view, work: { why: undefined, without: [] }, place: undefined, cache: undefined };
    expect(inspectorAddress({ ...plain, weights: "q8-row", deterministic: false })).toBe(
      "inspector.html#text=a+cat+%26+a+dog%3F",
    );
  });

  test("has fields that the page reads", () => {
    const folder = join("site", "src", "inspector");
    const files = [join("site", "src", "inspector.ts"), ...readdirSync(folder).map((name) => join(folder, name))];
    const [state = ""] = files
      .map((file) => readFileSync(file, "utf8"))
      .filter((code) => code.includes("createState({"));
    const known = Array.from(state.matchAll(/^ {2}(\w+): (?:text|integer|flag|choice)\(/gm), ([, name]) => name);
    expect(known).toEqual(
      expect.arrayContaining(Object.keys(fieldsOf(inspectorAddress({ ...view, path: "https://x/" })))),
    );
  });
});

test.each([
  [["--weights", "q8", "--cache", "q4"], "q8"],
  [["--weights", "q4", "--cache", "f16"], "q4"],
])("formats %j run, and the digest names them", (args, formats) => {
  const { status, stdout } = ofIds(...args, "--statistics", "--next", "3");
  expect(status).toBe(0);
  expect(stdout).toContain(`weights ${formats}`);
  expect(section(stdout, "id").length).toBe(4);
});

describe("models in a folder", () => {
  let folder: string;
  beforeAll(() => {
    folder = mkdtempSync(join(tmpdir(), "headwise-inspect-"));
    const file = tinyFolder(TINY.deepseek_v3);
    for (const name of ["config.json", "model.safetensors"])
      writeFileSync(join(folder, name), file(name) as Uint8Array);
  });
  afterAll(() => rmSync(folder, { recursive: true, force: true }));

  test("of latent attention have heads, maps, scores and statistics", () => {
    const ids = ["--ids", "3,1,4,1,5,9,2,6,5"];
    const { status, stdout } = run(folder, ...ids, "--layer", "1", "--head", "0", "--why", "4,2", "--statistics");
    expect(status).toBe(0);
    expect(stdout).toContain('head 1.0 at 4 "5" gives 2 "4" the score');
    expect(stdout).toMatch(/^head +kind +score +baseline +tokens +log-sum-exp +entropy/m);
  });

  test("whose other layers have no heads name what these are, and models without any are refused", () => {
    const write = (config: object) => {
      const file = tinyFolder(config);
      const own = mkdtempSync(join(folder, "hybrid-"));
      for (const name of ["config.json", "model.safetensors"]) writeFileSync(join(own, name), file(name) as Uint8Array);
      return own;
    };
    const ids = ["--ids", "3,1,4,1,5,9,2,6,5"];
    const hybrid = write(HYBRIDS.lfm2);
    const shown = run(hybrid, ...ids, "--statistics");
    expect(shown.status).toBe(0);
    expect(shown.stdout).toMatch(/^ {8}without heads: 0, 2: gated convolution$/m);
    expect(shown.stdout).toMatch(/^1\.0 .* \d\.\d\d$/m);
    expect(shown.stdout).not.toMatch(/^0\.0 /m);
    expect(JSON.parse(run(hybrid, ...ids, "--json").stdout).mixers).toEqual([
      "gated convolution",
      "attention",
      "gated convolution",
    ]);
    const refused = run(hybrid, ...ids, "--layer", "2");
    expect([refused.status, refused.stderr]).toEqual([
      2,
      "headwise inspect: --layer expected a layer with heads of attention, got 2: gated convolution (see headwise inspect --help)\n",
    ]);
    expect(run(hybrid, ...ids, "--without", "0.0").stderr).toContain("got 0.0: layer 0 has 0 heads");
    const none = run(write(HYBRIDS.mamba2), ...ids);
    expect(none.stderr).toContain("inspect: MODEL expected one with heads of attention, got Mamba-2 in all layers");
    expect(none.status).toBe(2);
  });

  test("ids that the tokenizer has no token for are shown as such", () => {
    writeFileSync(join(folder, "tokenizer.json"), JSON.stringify(wordTokenizer(20)));
    const { stdout } = run(folder, "w3 w1 w4", "--next", "67", "--maps", "0");
    const words = section(stdout, "next").slice(1).map(cellsOf);
    for (const [word, id] of words) expect(word).toBe(Number(id) < 20 ? `w${id}` : `#${id}`);
    expect(words.length).toBe(67);
  });

  test("an encoder is refused by name", () => {
    writeFileSync(join(folder, "config.json"), JSON.stringify({ model_type: "bert" }));
    const got = `headwise inspect: ${folder}: source expected a model that writes, got bert, an encoder, which reads texts\n`;
    expect(run(folder, "text")).toMatchObject({ status: 2, stdout: "", stderr: got });
  });
});

test.each([
  [["--head", "1"], "--head expected --layer beside it, got none"],
  [["--why", "1,0"], "--why expected --layer and --head beside it, got neither"],
  [["--why", "1,0", "--layer", "0"], "--why expected --layer and --head beside it, got --layer alone"],
  [
    ["--why", "1", "--layer", "0", "--head", "0"],
    "--why expected the positions of a query and a key, such as 9,6, got 1",
  ],
  [["--why", "20,0", "--layer", "0", "--head", "0"], "--why QUERY expected an integer from 0 to 19, got 20"],
  [["--why", "3,4", "--layer", "0", "--head", "0"], "--why KEY expected a token that 3 sees, 0 to 3, got 4"],
  [["--layer", "2"], "--layer expected an integer from 0 to 1, got 2"],
  [["--layer", "1", "--head", "4"], "--head expected an integer from 0 to 3, got 4"],
  [["--without", "1,2"], "--without expected heads as LAYER.HEAD, separated by commas, got 1,2"],
  [["--without", "0.1,0.4"], "--without expected heads of the model, got 0.4: layer 0 has 4 heads"],
  [["--without", "2.0"], "--without expected heads of the model, got 2.0: it has 2 layers"],
  [["--from", "20"], "--from expected an integer from 0 to 19, got 20"],
  [["--colour", "yes"], "--colour expected auto, always, never, got yes"],
  [["--color", "always"], "unknown option --color, did you mean --colour?"],
  [["--width", "10"], "--width expected an integer of 20 or more, got 10"],
  [["--ids", "96"], "--ids expected ids below 96, those of the model, got 96"],
  [["text"], "expected a text, or --ids with token ids, got both"],
])("%j is refused", (args, message) => {
  const got = `headwise inspect: ${message} (see headwise inspect --help)\n`;
  expect(ofIds(...args)).toMatchObject({ status: 2, stdout: "", stderr: got });
});

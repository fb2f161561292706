// The pages as they lie in the repository: what they load is there, what is copied is equal, and every input has a label.
// `npm run test:examples` and `npm run test:browsers` open them in browsers.

import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { describe, expect, test } from "vitest";

const root = join(import.meta.dirname, "../..");
const read = (file: string) => readFileSync(join(root, file), "utf8");

const GGUF = join(root, "model/stories/stories.gguf");
const STYLE = "src/entries/style.css";
test.each([
  [STYLE, "examples/browser/style.css"],
  [STYLE, "examples/search/style.css"],
  [STYLE, "examples/cloudflare/public/style.css"],
  [STYLE, "dist/doctor.css"],
])("%s and its copy %s are equal", (source, copy) => {
  expect(Buffer.compare(readFileSync(join(root, copy)), readFileSync(join(root, source)))).toBe(0);
});

const OWN = ["examples/browser/index.html", "examples/browser/maps.html"];
const SEARCH = "examples/search/index.html";
const PAGES = ["src/entries/doctor.html", ...OWN, SEARCH, "examples/cloudflare/public/index.html"];
const BUILT = ["./doctor.css", "./doctor-page.js"];

describe.each(PAGES)("%s", (page) => {
  const text = read(page);
  const matches = (pattern: RegExp) => Array.from(text.matchAll(pattern), ([, found]) => found as string);

  test("has the width of a phone's screen, and its style in files", () => {
    expect(text).toContain('<meta name="viewport" content="width=device-width, initial-scale=1"');
    expect(text).toMatch(/<link rel="stylesheet" href="[^"]+"/);
    expect(text).not.toMatch(/<style|\sstyle="/);
  });

  test("loads files that are there", () => {
    const files = matches(/<(?:script[^>]* src|link rel="stylesheet" href)="([^"]+)"/g);
    expect(files.length).toBeGreaterThan(1);
    const here = files.filter((file) => !BUILT.includes(file)).map((file) => join(dirname(page), file));
    expect(here.filter((file) => !existsSync(join(root, file)))).toEqual([]);
  });

  test("has a label for each input", () => {
    const inputs = matches(/<(?:input|textarea)\b([^>]*)>/g);
    const unlabelled = inputs.filter((attributes) => {
      const id = /\bid="([^"]+)"/.exec(attributes)?.[1];
      const wrapped = new RegExp(`<label[^>]*><input[^>]*id="${id}"`).test(text);
      return !text.includes(`<label for="${id}"`) && !wrapped && !/\breadonly\b.*aria-label=/.test(attributes);
    });
    expect(unlabelled).toEqual([]);
  });
});

test("the policy of the Cloudflare page allows its style sheet and nothing inline", () => {
  const policy = read("examples/cloudflare/public/_headers");
  expect(policy).toContain("style-src 'self';");
  expect(policy).not.toContain("unsafe-inline");
});

describe("the browser example", () => {
  const PACKAGES = ["headwise", "@huggingface/tokenizers", "@huggingface/jinja"];
  const scripts = readdirSync(join(root, "examples/browser")).filter((name) => name.endsWith(".js"));
  const importsOf = (name: string) => {
    const found = read(`examples/browser/${name}`).matchAll(/(?:\bfrom|\bimport\(|new URL\()\s*"([^"]+)"/g);
    return Array.from(found, ([, path]) => path as string);
  };

  test("imports nothing from outside of its folder but the packages", () => {
    const imports = scripts.flatMap(importsOf);
    expect(imports.length).toBeGreaterThan(5);
    const inside = /^(?:headwise(?:\/|$)|model\/|\.\/(?!\.))/;
    expect(imports.filter((path) => !inside.test(path))).toEqual([]);
  });

  /** A copy of the folder and of the models, at the same places relative to each other. */
  function copy(): { readonly folder: string; readonly above: string } {
    const above = mkdtempSync(join(tmpdir(), "headwise-page-"));
    for (const name of ["examples/browser", "model"]) cpSync(join(root, name), join(above, name), { recursive: true });
    return { folder: join(above, "examples/browser"), above };
  }

  test("serves all that it needs from a copy of the folder, under a strict policy", async () => {
    const { folder, above } = copy();
    mkdirSync(join(above, "node_modules/@huggingface"), { recursive: true });
    for (const name of PACKAGES) {
      const from = name === "headwise" ? root : join(root, "node_modules", name);
      symlinkSync(from, join(above, "node_modules", name), "junction");
    }
    const server = spawn(process.execPath, ["serve.mjs", "0"], { cwd: folder, stdio: ["ignore", "pipe", "inherit"] });
    try {
      const url = await new Promise<string>((resolve, reject) => {
        server.on("exit", (code) => reject(new Error(`serve.mjs ended with ${code}`)));
        server.stdout.setEncoding("utf8").on("data", (line: string) => resolve(/http:\S+/.exec(line)?.[0] ?? line));
      });
      const mapOf = (page: string) =>
        /<script type="importmap">([\s\S]*?)<\/script>/.exec(read(`examples/browser/${page}`))?.[1] as string;
      const maps = { "": mapOf("index.html"), "maps.html": mapOf("maps.html") };
      const files = [...scripts, ...Object.keys(maps), "style.css", "maps.css"];
      const models = ["model/config.json", "model/model.safetensors", "model/stories/stories.gguf"];
      const packages = Object.values(maps).flatMap((map) => Object.values<string>(JSON.parse(map).imports));
      for (const file of [...files, ...models, ...packages]) {
        const response = await fetch(new URL(file, url));
        expect([file, response.status]).toEqual([file, 200]);
        if (file.endsWith(".css")) expect(response.headers.get("content-type")).toMatch(/^text\/css/);
        const policy = response.headers.get("content-security-policy");
        const map = Object.hasOwn(maps, file) ? maps[file as keyof typeof maps] : undefined;
        const hash = map && ` 'sha256-${createHash("sha256").update(map).digest("base64")}'`;
        const scriptSources = `'self' 'wasm-unsafe-eval'${hash ?? ""}`;
        expect(policy).toContain(`default-src 'none'; script-src ${scriptSources}; style-src 'self';`);
      }
      expect((await fetch(new URL("../package.json", url))).status).toBe(404);
      const part = await fetch(new URL("model/stories/stories.gguf", url), { headers: { Range: "bytes=4-7" } });
      expect([part.status, part.headers.get("content-range")]).toEqual([206, `bytes 4-7/${statSync(GGUF).size}`]);
      expect(Buffer.from(await part.arrayBuffer())).toEqual(readFileSync(GGUF).subarray(4, 8));
    } finally {
      server.kill();
      rmSync(above, { recursive: true, force: true });
    }
  });

  test("without the packages, its server says what to install", async () => {
    const { folder, above } = copy();
    const server = spawn(process.execPath, ["serve.mjs", "0"], { cwd: folder, stdio: ["ignore", "pipe", "pipe"] });
    let said = "";
    server.stderr.setEncoding("utf8").on("data", (text: string) => {
      said += text;
    });
    const code = await new Promise((resolve) => server.on("close", resolve));
    rmSync(above, { recursive: true, force: true });
    expect([code, said]).toEqual([1, `headwise is not installed here: run npm install ${PACKAGES.join(" ")}\n`]);
  });
});

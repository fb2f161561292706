// The pages as they lie in the repository: what they load is there, what is copied is equal, and every input has a label.
// `npm run test:examples` and `npm run test:browsers` open them in browsers.

import { spawn } from "node:child_process";
import { cpSync, existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, normalize } from "node:path";
import { describe, expect, test } from "vitest";

const root = join(import.meta.dirname, "../..");
const read = (file: string) => readFileSync(join(root, file), "utf8");

const STYLE = "src/entries/style.css";
test.each([
  [STYLE, "examples/browser/style.css"],
  [STYLE, "examples/cloudflare/public/style.css"],
  [STYLE, "dist/doctor.css"],
  ["model/config.json", "examples/browser/model/config.json"],
  ["model/model.safetensors", "examples/browser/model/model.safetensors"],
])("%s and its copy %s are equal", (source, copy) => {
  expect(Buffer.compare(readFileSync(join(root, copy)), readFileSync(join(root, source)))).toBe(0);
});

const PAGES = ["src/entries/doctor.html", "examples/browser/index.html", "examples/cloudflare/public/index.html"];
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
  const scripts = readdirSync(join(root, "examples/browser")).filter((name) => /\.m?js$/.test(name));

  test("imports nothing from outside of its folder but the package", () => {
    const imports = scripts.flatMap((name) => {
      const found = read(`examples/browser/${name}`).matchAll(/(?:\bfrom|\bimport\(|new URL\()\s*"([^"]+)"/g);
      return Array.from(found, ([, path]) => path as string);
    });
    expect(imports.length).toBeGreaterThan(3);
    const outside = (path: string) =>
      path.startsWith(".") ? normalize(path).startsWith("..") : !/^(?:headwise|node:)/.test(path);
    expect(imports.filter(outside)).toEqual([]);
  });

  test("serves all that it needs from a copy of the folder", async () => {
    const folder = mkdtempSync(join(tmpdir(), "headwise-page-"));
    cpSync(join(root, "examples/browser"), folder, { recursive: true });
    mkdirSync(join(folder, "node_modules"));
    symlinkSync(root, join(folder, "node_modules/headwise"), "junction");
    const server = spawn(process.execPath, ["serve.mjs", "0"], { cwd: folder, stdio: ["ignore", "pipe", "inherit"] });
    try {
      const url = await new Promise<string>((resolve, reject) => {
        server.on("exit", (code) => reject(new Error(`serve.mjs ended with ${code}`)));
        server.stdout.setEncoding("utf8").on("data", (line: string) => resolve(/http:\S+/.exec(line)?.[0] ?? line));
      });
      const map = /<script type="importmap">([\s\S]*?)<\/script>/.exec(read("examples/browser/index.html"))?.[1];
      const { imports } = JSON.parse(map as string) as { readonly imports: Record<string, string> };
      const files = ["", "style.css", "maps.css", "page.js", "maps.js", "decoder.js"];
      const model = ["model/config.json", "model/model.safetensors"];
      for (const file of [...files, ...model, ...Object.values(imports)]) {
        const response = await fetch(new URL(file, url));
        expect([file, response.status]).toEqual([file, 200]);
        if (file.endsWith(".css")) expect(response.headers.get("content-type")).toMatch(/^text\/css/);
      }
      expect((await fetch(new URL("../package.json", url))).status).toBe(404);
    } finally {
      server.kill();
      rmSync(folder, { recursive: true, force: true });
    }
  });

  test("without the package, its server says what to install", async () => {
    const folder = mkdtempSync(join(tmpdir(), "headwise-page-"));
    cpSync(join(root, "examples/browser"), folder, { recursive: true });
    const server = spawn(process.execPath, ["serve.mjs", "0"], { cwd: folder, stdio: ["ignore", "pipe", "pipe"] });
    let said = "";
    server.stderr.setEncoding("utf8").on("data", (text: string) => {
      said += text;
    });
    const code = await new Promise((resolve) => server.on("close", resolve));
    rmSync(folder, { recursive: true, force: true });
    expect([code, said]).toEqual([1, "headwise is not installed here: run npm install headwise\n"]);
  });
});

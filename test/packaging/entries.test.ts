// The ways into the built package: each entry of the exports map exists, and what can run here runs.

import { execFileSync, spawnSync } from "node:child_process";
import {
  copyFileSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { expect, test } from "vitest";

const root = join(import.meta.dirname, "../..");
const manifest = JSON.parse(readFileSync(join(root, "package.json"), "utf8")) as { exports: object };

/** Runs a module in a plain Node, where "headwise" is the built package itself. */
function run(code: string): string {
  return execFileSync(process.execPath, ["--input-type=module", "-e", code], { cwd: root, encoding: "utf8" }).trim();
}

const USE = `
  const w = { data: Float32Array.from({ length: 16 }, (_, i) => (i % 5 === 0 ? 1 : 0)), shape: [4, 4] };
  const attention = createAttention(kernels, { dModel: 4, numHeads: 2, causal: true }, { wq: w, wk: w, wv: w, wo: w });
  console.log(kernels.build, Array.from(attend(attention, Float32Array.of(1, 2, 3, 4))).join());`;

test("every file that the exports map names was built", () => {
  const files: string[] = [];
  const collect = (value: unknown): void => {
    if (typeof value === "string") files.push(value);
    else for (const inner of Object.values(value as object)) collect(inner);
  };
  collect(manifest.exports);
  expect(files.length).toBeGreaterThan(10);
  expect(files.filter((file) => !existsSync(join(root, file)))).toEqual([]);
});

/** A file of dist/ and all that it imports from there. */
function reached(file: string, seen = new Map<string, string>()): Map<string, string> {
  if (seen.has(file) || !existsSync(join(root, "dist", file))) return seen;
  const code = readFileSync(join(root, "dist", file), "utf8");
  seen.set(file, code);
  for (const [, path] of code.matchAll(/(?:from|import) "(\.[^"]+)"/g))
    reached(join(dirname(file), path as string), seen);
  return seen;
}

test("headwise runs with the bytes inlined", () => {
  const code = `import { attend, createAttention, loadKernels } from "headwise"; const kernels = await loadKernels();${USE}`;
  // An engine that does not fuse takes simd.
  expect(run(code)).toMatch(/^(relaxed|simd) 1,2,3,4$/);
  expect(run(code.replace("loadKernels()", "loadKernels({ deterministic: true })"))).toBe("simd 1,2,3,4");
});

test("old entries and names are what took their place, and each warns once, with the new name", () => {
  const code = `
    import { selfTest, loadKernels } from "headwise/inline";
    import * as heads from "headwise/heads";
    import * as sessions from "headwise/sessions";
    import * as encoders from "headwise/encoders";
    import * as headwise from "headwise";
    import * as models from "headwise/models";
    await import("headwise/encoders");
    const kernels = await loadKernels();
    const passed = [selfTest(kernels).ok, selfTest(kernels).ok];
    const same = (old, now) => Object.keys(now).every((name) => old[name] === now[name]);
    console.log(...passed, same(heads, headwise), same(sessions, models), same(encoders, models));`;
  const { stdout, stderr } = spawnSync(process.execPath, ["--input-type=module", "-e", code], {
    cwd: root,
    encoding: "utf8",
  });
  expect(stdout).toBe("true true true true true\n");
  const warning = (name: string, now: string) =>
    `headwise: ${name} is an old name, which the next version does not have: use ${now}`;
  expect(stderr.trim().split("\n")).toEqual([
    warning("headwise/inline", "headwise"),
    warning("headwise/heads", "headwise"),
    warning("headwise/sessions", "headwise/models"),
    warning("headwise/encoders", "headwise/models"),
    warning("selfTest of headwise", "selfTest of headwise/doctor"),
  ]);
});

test("headwise/core runs with a module of your own", () => {
  const code = `import { readFileSync } from "node:fs";
    import { attend, createAttention, loadKernels } from "headwise/core";
    const path = new URL(import.meta.resolve("headwise/simd.wasm"));
    const kernels = await loadKernels({ module: new WebAssembly.Module(readFileSync(path)) });${USE}`;
  expect(run(code)).toBe("simd 1,2,3,4");
});

test("headwise/threads runs with threads, ends with the process, and takes headwise/worker", () => {
  const code = `import { attend, createAttention, loadKernels } from "headwise/threads";
    const kernels = await loadKernels({ threads: 3 });${USE} console.log(kernels.threads.used);`;
  expect(run(code)).toMatch(/^(relaxed|simd) 1,2,3,4\n3$/);
  const file = `import { Worker } from "node:worker_threads"; const createWorker = () => {
    console.log("file"); return new Worker(new URL(import.meta.resolve("headwise/worker")), { execArgv: [] }); };`;
  expect(run(file + code.replace("threads: 3", "threads: 3, createWorker"))).toMatch(
    /^file\nfile\n(relaxed|simd) 1,2,3,4\n3$/,
  );
});

test("the other entries name headwise/threads when threads are asked for", () => {
  const code = `import { loadKernels } from "headwise";
    for (const options of [{}, { threads: 1 }, { threads: 4 }, { threads: "auto" }])
      console.log(JSON.stringify((await loadKernels(options)).threads));`;
  const reason = "this entry has one thread: import headwise/threads";
  expect(
    run(code)
      .split("\n")
      .map((line) => JSON.parse(line)),
  ).toEqual([
    { requested: 1, used: 1, reason },
    { requested: 1, used: 1, reason: "one thread was asked for" },
    { requested: 4, used: 1, reason },
    { requested: "auto", used: 1, reason },
  ]);
});

test("what threads need is in no entry but theirs", () => {
  const holders = ["index.js", "core.js", "index.workerd.js", "threads.workerd.js", "threads.js"].filter((file) =>
    Array.from(reached(file).values()).some((code) => /Atomics|worker_threads/.test(code)),
  );
  expect(holders).toEqual(["threads.js"]);
});

test("the types compile for strict programs that check their libraries, with the types of any host or of none", () => {
  const folder = mkdtempSync(join(tmpdir(), "headwise-types-"));
  const code = `import { attend, type AttentionConfig, createAttention, loadKernels } from "headwise";
    import * as core from "headwise/core";
    import { diagnose } from "headwise/doctor";
    import { quantized } from "headwise/quantized";
    import { reference } from "headwise/reference";
    import { attendSharded } from "headwise/shards";
    import { readSafetensors } from "headwise/weights";
    import * as threads from "headwise/threads";
    import "headwise/worker";
    export const config: AttentionConfig = { dModel: 4, numHeads: 2, rope: { theta: 10_000, pairing: "half" } };
    export const used = [attend, createAttention, loadKernels, core.attend, threads.loadKernels, reference.linear_f32, readSafetensors];
    export const others = [diagnose, quantized, attendSharded];`;
  try {
    mkdirSync(join(folder, "node_modules"));
    symlinkSync(root, join(folder, "node_modules/headwise"));
    writeFileSync(join(folder, "index.mts"), code);
    copyFileSync(join(import.meta.dirname, "package/project/optional.ts"), join(folder, "optional.mts"));
    const flags = [
      "--strict",
      "--noEmit",
      "--skipLibCheck",
      "false",
      "--exactOptionalPropertyTypes",
      "--types",
      "",
      "--target",
      "es2022",
    ];
    for (const [module, resolution, lib] of [
      ["nodenext", "nodenext", "es2022,dom"],
      ["esnext", "bundler", "es2022,dom"],
      ["nodenext", "nodenext", "es2020,dom"],
      ["nodenext", "nodenext", "es2022,webworker"],
      ["nodenext", "nodenext", "es2022"],
    ] as const) {
      const options = [
        ...flags,
        "--module",
        module,
        "--moduleResolution",
        resolution,
        "--lib",
        lib,
        "index.mts",
        "optional.mts",
      ];
      const { stdout } = spawnSync(process.execPath, [join(root, "node_modules/typescript/bin/tsc"), ...options], {
        cwd: folder,
        encoding: "utf8",
      });
      expect(stdout, `${module}, ${lib}`).toBe("");
    }
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});

test("headwise/reference holds the twins", () => {
  const code = `import { reference } from "headwise/reference"; console.log(Object.keys(reference).includes("attention_f32"));`;
  expect(run(code)).toBe("true");
});

test.each([
  ["index.workerd.js", ""],
  ["index.edge-light.js", "?module"],
  ["threads.workerd.js", ""],
  ["threads.edge-light.js", "?module"],
])("%s leaves both modules to the host and holds no bytes", (file, suffix) => {
  const [own, ...shared] = reached(file).values();
  for (const build of ["simd", "relaxed"]) expect(own).toContain(`from "./${build}.wasm${suffix}"`);
  // The longest run of letters that base64 might be is a name.
  for (const code of [own, ...shared]) expect(code).not.toMatch(/[\w+/]{100}/);
});

test("all entries throw the same class of error", () => {
  const code = `const entries = await Promise.all(["headwise", "headwise/core", "headwise/threads", "headwise/shards", "headwise/weights"]
    .map((name) => import(name))); console.log(new Set(entries.map((entry) => entry.HeadwiseError)).size);`;
  expect(run(code)).toBe("1");
});

test("no file imports another for its side effects", () => {
  const bare = readdirSync(join(root, "dist"), { recursive: true, encoding: "utf8" })
    .filter((file) => file.endsWith(".js"))
    .filter((file) => /^import "/m.test(readFileSync(join(root, "dist", file), "utf8")));
  expect(bare).toEqual([]);
});

test.each([
  ["attend", "attend(attention, [1, 2, 3, 4])", ["attend", "readCall", "expectFloats"]],
  ["createCache", "createCache(attention, {})", ["createCache", "expectInt"]],
])("an uncaught error of %s prints less than 1.5 KB, its line of code and the functions by name", (_, call, names) => {
  const code = `import { attend, createAttention, createCache, loadKernels } from "headwise";
    const kernels = await loadKernels();${USE} ${call};`;
  const { status, stderr } = spawnSync(process.execPath, ["--input-type=module", "-e", code], {
    cwd: root,
    encoding: "utf8",
  });
  expect(status).toBe(1);
  expect(stderr.length).toBeLessThan(1500);
  expect(stderr).toMatch(/^file:.*dist.*\n +(?:if .* )?(?:throw|return) .*;\n/);
  expect(names.filter((name) => !stderr.includes(`    at ${name} (`))).toEqual([]);
});

test("no line of dist/ is longer than 200 characters, except modules and workers that are contained as text", () => {
  const TEXT = /^ *(?:var )?\w+_default = (["'`]).*\1;$/;
  const files = readdirSync(join(root, "dist"), { recursive: true, encoding: "utf8" }).filter((file) =>
    file.endsWith(".js"),
  );
  const linesOf = (file: string) => readFileSync(join(root, "dist", file), "utf8").split("\n");
  const long = files.flatMap((file) =>
    linesOf(file)
      .filter((line) => line.length > 200 && !TEXT.test(line))
      .map((line) => `${file}: ${line.slice(0, 80)}`),
  );
  expect(files.length).toBeGreaterThan(20);
  expect(long).toEqual([]);
});

test("a build without node_modules names what is missing and what to run", () => {
  const folder = mkdtempSync(join(tmpdir(), "headwise-bare-"));
  try {
    cpSync(join(root, "scripts"), join(folder, "scripts"), { recursive: true });
    cpSync(join(root, "package.json"), join(folder, "package.json"));
    const { status, stderr } = spawnSync(process.execPath, ["scripts/build.mjs"], { cwd: folder, encoding: "utf8" });
    expect(stderr).toBe("build: node_modules expected assemblyscript, got none. Run `npm install` first.\n");
    expect(status).toBe(1);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});

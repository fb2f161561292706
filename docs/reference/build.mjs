// The API reference of every entry in scripts/entries.mjs: pages in out/, from the doc comments in src/ (typedoc), and one
// report per entry in report/, from the declarations in dist/ (API Extractor). A report is the public surface as text: each
// declaration stands in that of the first entry that has it, and later ones name it. It is committed, so that a diff shows every
// change of the API. Warnings are errors: each export and each of its members has a comment. `--check` compares the reports with
// those that are committed and writes none.

import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { Extractor, ExtractorConfig } from "@microsoft/api-extractor";
import { Application } from "typedoc";
import { ENTRIES, importName } from "../../scripts/entries.mjs";

const root = join(import.meta.dirname, "../..");
const [out, reports] = ["out", "report"].map((name) => join(import.meta.dirname, name));
const tsconfig = join(import.meta.dirname, "tsconfig.json");
const check = process.argv.includes("--check");
/** A worker's script has nothing to import. */
const entries = ENTRIES.filter(({ worker }) => !worker);

/** Types that only spell out an exported one. The reports have them. */
const HELPER_TYPES = [
  ...[
    "BlockDtype",
    "CodedDtype",
    "Global",
    "KernelTable",
    "PlainDtype",
    "PlannedBytes",
    "RangeFetch",
    "Twin",
    "WasmAddress",
    "WasmModule",
  ],
];

/** Writes the pages. Resolves with whether there was nothing to report. */
async function writePages() {
  const app = await Application.bootstrap({
    name: "headwise",
    tsconfig,
    entryPoints: entries.map(({ source }) => join(root, source)),
    displayBasePath: root,
    readme: "none",
    excludeInternal: true,
    // Pages lie two folders below this one, and link to the sources in the same checkout.
    disableGit: true,
    sourceLinkTemplate: "../../../../{path}",
    treatWarningsAsErrors: true,
    validation: { notExported: true, invalidLink: true, invalidPath: true, notDocumented: true },
    intentionallyNotExported: HELPER_TYPES,
  });
  const project = await app.convert();
  if (!project) return false;
  for (const page of project.children) {
    const [{ fileName }] = page.sources;
    page.name = entries.find(({ source }) => fileName.endsWith(source)).subpath.replace(".", "headwise");
  }
  app.validate(project);
  await app.generateDocs(project, out);
  return !app.logger.hasErrors() && !app.logger.hasWarnings();
}

/** Where API Extractor writes whole reports. */
const whole = join(root, "build/report");

/** Writes the whole report of one entry. Returns whether there was nothing to report. */
function extract(name) {
  const config = ExtractorConfig.prepare({
    packageJsonFullPath: join(root, "package.json"),
    configObject: {
      projectFolder: root,
      mainEntryPointFilePath: join(root, `dist/${name}.d.ts`),
      newlineKind: "lf",
      compiler: { tsconfigFilePath: tsconfig },
      apiReport: {
        enabled: true,
        reportFileName: name,
        reportFolder: whole,
        reportTempFolder: join(whole, "temp"),
        includeForgottenExports: true,
      },
      docModel: { enabled: false },
      dtsRollup: { enabled: false },
      messages: {
        compilerMessageReporting: { default: { logLevel: "error" } },
        extractorMessageReporting: {
          default: { logLevel: "error" },
          "ae-forgotten-export": { logLevel: "none" },
          "ae-missing-release-tag": { logLevel: "none" },
          // typedoc asks for comments.
          "ae-undocumented": { logLevel: "none" },
        },
        tsdocMessageReporting: { default: { logLevel: "none" } },
      },
    },
  });
  const { succeeded } = Extractor.invoke(config, {
    localBuild: true,
    messageCallback(message) {
      if (/^console-(preamble|api-report-(created|copied))$/.test(message.messageId)) message.logLevel = "none";
    },
  });
  return succeeded;
}

/** The fence around the declarations of a report. */
const FENCE = /(?<=```ts\n)[\s\S]*(?=\n```)/;
/** The name that a declaration of a report declares. */
const NAME =
  /^(?:export )?(?:declare )?(?:abstract )?(?:async )?(?:interface|type|class|const|function|namespace) ([\w$]+)/m;

/** The reports without what stands in one before: entry -> text. */
function shorten() {
  const [first, owners] = [new Map(), new Map()];
  const read = entries.map(({ name, subpath }) => {
    const text = readFileSync(join(whole, `${name}.api.md`), "utf8");
    const pieces = FENCE.exec(text)[0]
      .split("\n\n")
      .map((piece) => piece.trim());
    return { name, subpath, text, pieces };
  });
  const plain = (piece) => piece.replace(/^export /m, "");
  // A type that one entry only refers to belongs to the one that exports it.
  for (const exported of [true, false])
    for (const { subpath, pieces } of read)
      for (const piece of pieces)
        if (/^export /m.test(piece) === exported && !owners.has(plain(piece))) owners.set(plain(piece), subpath);
  for (const { name, subpath, text, pieces } of read) {
    const isOwn = (piece) => owners.get(plain(piece)) === subpath || !NAME.test(piece);
    const others = new Map();
    for (const piece of pieces) {
      if (isOwn(piece) || !/^export /m.test(piece)) continue;
      const owner = owners.get(plain(piece));
      others.set(owner, [...(others.get(owner) ?? []), NAME.exec(piece)[1].replace(/_\d+$/, "")]);
    }
    const passed = Array.from(others, ([owner, names]) => `// As in ${importName(owner)}: ${names.join(", ")}`);
    const kept = [...passed, ...pieces.filter(isOwn)].filter(Boolean);
    first.set(
      name,
      text.replace(FENCE, () => `\n${kept.join("\n\n")}\n`),
    );
  }
  return first;
}

/** Writes or compares the reports. Returns whether there was nothing to report. */
function writeReports() {
  let same = true;
  for (const [name, text] of shorten()) {
    const file = join(reports, `${name}.api.md`);
    if (!check) writeFileSync(file, text);
    else if (readFileSync(file, "utf8") !== text) {
      console.error(`report/${name}.api.md: expected what \`npm run docs\` writes, got something else`);
      same = false;
    }
  }
  return same;
}

mkdirSync(reports, { recursive: true });
mkdirSync(whole, { recursive: true });
const names = entries.map(({ name }) => `${name}.api.md`);
const left = readdirSync(reports).filter((file) => !names.includes(file));
if (!check) for (const file of left) rmSync(join(reports, file));
else if (left.length > 0) console.error(`report/: expected one file for each entry, got ${left.join(", ")} too`);

const ok = [
  await writePages(),
  ...entries.map(({ name }) => extract(name)),
  writeReports(),
  !check || left.length === 0,
];
if (!ok.every(Boolean)) process.exit(1);
console.log(`docs/reference/out/index.html, ${entries.length} reports in docs/reference/report/`);

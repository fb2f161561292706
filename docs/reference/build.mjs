// The API reference of every entry in scripts/entries.mjs: pages in out/, from the doc comments in src/ (typedoc), and
// report.md, every public declaration once with the entries that export it, from the declarations in dist/ (API Extractor).
// The report is committed, so that a diff shows every change of the API. Warnings are errors: each export and each of its
// members has a comment. `--check` compares the report with the one that is committed and does not write it.

import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { Extractor, ExtractorConfig } from "@microsoft/api-extractor";
import { Application } from "typedoc";
import { ENTRIES } from "../../scripts/entries.mjs";

const root = join(import.meta.dirname, "../..");
const out = join(import.meta.dirname, "out");
const report = join(import.meta.dirname, "report.md");
/** What API Extractor writes: a report for each entry. */
const reports = join(root, "build/report");
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
    "Vector",
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

/** Writes the report of one entry to `reports`. Returns whether there was nothing to report. */
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
        reportFolder: reports,
        reportTempFolder: join(reports, "temp"),
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
      if (message.messageId.startsWith("console-")) message.logLevel = "none";
    },
  });
  return succeeded;
}

/** The declarations of a report: text and name, and whether it is exported. Types that others spell out are declared, too. */
function declarationsOf(name) {
  const text = readFileSync(join(reports, `${name}.api.md`), "utf8");
  let [, code] = /```ts\n([\s\S]*?)\n```/.exec(text);
  // API Extractor numbers names that exist as globals, or in two files of dist/.
  for (const [, numbered, own] of code.matchAll(/^(?:export )?(?:interface|type|class|function|const) ((\w+)_\d)\b/gm))
    code = code.replaceAll(new RegExp(`\\b${numbered}\\b`, "g"), own);
  return code.split(/^(?=\/\/ @public)/m).flatMap((part) => {
    const lines = part.split("\n").filter((line) => line !== "" && !line.trimStart().startsWith("//"));
    const declared = lines.filter((line) => !line.startsWith("export {"));
    const [first = ""] = declared;
    const [, id] = /(?:class|function|const|let|interface|type|enum) (\w+)/.exec(first) ?? [];
    if (id === undefined) return [];
    const isExported = first.startsWith("export ") || declared.length < lines.length;
    return [{ id, text: declared.join("\n").replace(/^export /, ""), isExported }];
  });
}

/** Every declaration once, by name, behind the entries that export it. */
function merged() {
  const all = new Map();
  for (const { name, subpath } of entries)
    for (const { id, text, isExported } of declarationsOf(name)) {
      const found = all.get(text) ?? { id, text, users: [] };
      if (isExported) found.users.push(subpath.replace(".", "headwise"));
      all.set(text, found);
    }
  const sorted = [...all.values()].sort((a, b) => (a.id < b.id ? -1 : a.id > b.id ? 1 : a.text < b.text ? -1 : 1));
  return sorted.map(({ text, users }) => `// ${users.length > 0 ? users.join(", ") : "part of others"}\n${text}\n`);
}

const HEAD = `# The API

Every public declaration once, behind the entries that export it. \`npm run docs\` writes this file: do not edit it.

`;

mkdirSync(join(reports, "temp"), { recursive: true });
const ok = [await writePages(), ...entries.map(({ name }) => extract(name))];
if (!ok.every(Boolean)) process.exit(1);
const declarations = merged();
const text = `${HEAD}\`\`\`ts\n${declarations.join("\n")}\`\`\`\n`;
if (!check) writeFileSync(report, text);
else if (text !== readFileSync(report, "utf8")) {
  const committed = readFileSync(report, "utf8")
    .slice(HEAD.length)
    .replace(/^```(?:ts)?\n/gm, "")
    .split(/\n(?=\/\/ )/);
  const trimmed = declarations.map((each) => each.trimEnd());
  const old = committed.map((each) => each.trimEnd());
  for (const each of old.filter((each) => !trimmed.includes(each))) console.error(`- ${each}\n`);
  for (const each of trimmed.filter((each) => !old.includes(each))) console.error(`+ ${each}\n`);
  console.error("docs/reference/report.md: expected what `npm run docs` writes, got something else");
  process.exit(1);
}
console.log(`docs/reference/out/index.html, ${declarations.length} declarations in docs/reference/report.md`);

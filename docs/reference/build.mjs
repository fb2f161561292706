// The API reference of every entry in scripts/entries.mjs: pages in out/, from the doc comments in src/ (typedoc), and one
// report per entry in report/, from the declarations in dist/ (API Extractor). A report is the public surface as text. It
// is committed, so that a diff shows every change of the API. Warnings are errors: each export and each of its members has
// a comment. `--check` compares the reports with those that are committed and writes none.

import { mkdirSync, readdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { Extractor, ExtractorConfig } from "@microsoft/api-extractor";
import { Application } from "typedoc";
import { ENTRIES } from "../../scripts/entries.mjs";

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

/** Writes or compares the report of one entry. Returns whether there was nothing to report. */
function writeReport(name) {
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
        reportTempFolder: join(root, "build/report"),
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
  const { succeeded, apiReportChanged } = Extractor.invoke(config, {
    localBuild: !check,
    printApiReportDiff: check,
    messageCallback(message) {
      if (message.messageId === "console-preamble") message.logLevel = "none";
      if (message.messageId !== "console-api-report-not-copied") return;
      console.error(`report/${name}.api.md: expected what \`npm run docs\` writes, got something else:`);
      message.handled = true;
    },
  });
  return succeeded && !(check && apiReportChanged);
}

mkdirSync(reports, { recursive: true });
const names = entries.map(({ name }) => `${name}.api.md`);
const left = readdirSync(reports).filter((file) => !names.includes(file));
if (!check) for (const file of left) rmSync(join(reports, file));
else if (left.length > 0) console.error(`report/: expected one file for each entry, got ${left.join(", ")} too`);

const ok = [await writePages(), ...entries.map(({ name }) => writeReport(name)), !check || left.length === 0];
if (!ok.every(Boolean)) process.exit(1);
console.log(`docs/reference/out/index.html, ${entries.length} reports in docs/reference/report/`);

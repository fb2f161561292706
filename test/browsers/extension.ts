import { cpSync, mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { entriesModule, type Project } from "./project.ts";

/** What an extension must say for WebAssembly, and for threads: its pages have no server that sends headers. */
const MANIFEST = {
  manifest_version: 3,
  name: "headwise in an extension",
  version: "1",
  content_security_policy: {
    extension_pages: "script-src 'self' 'wasm-unsafe-eval'; object-src 'self'; connect-src 'none'",
  },
  cross_origin_embedder_policy: { value: "require-corp" },
  cross_origin_opener_policy: { value: "same-origin" },
};

/** Writes an extension of one page, page.html, with the package in it. */
export function writeExtension(folder: string, project: Project, suite: string, script: string): void {
  mkdirSync(folder);
  cpSync(join(import.meta.dirname, "pages"), folder, { recursive: true });
  cpSync(join(project.folder, "node_modules/headwise"), join(folder, "node_modules/headwise"), { recursive: true });
  writeFileSync(join(folder, "manifest.json"), JSON.stringify(MANIFEST));
  writeFileSync(join(folder, "package-files.mjs"), entriesModule(project, "file"));
  writeFileSync(join(folder, "suite.mjs"), suite);
  writeFileSync(
    join(folder, "page.html"),
    `<!doctype html><meta charset="utf-8"><script type="module" src="${script}"></script>`,
  );
}

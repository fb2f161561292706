// What no file that others' programs may load says: that it needs Node, runs text as code, waits before it is there, or asks
// where it lies.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import manifest from "../../../package.json" with { type: "json" };

export interface CodeFile {
  readonly file: string;
  /** What it imports. */
  readonly imports: readonly string[];
  readonly faults: readonly string[];
}

/** A node of a syntax tree in the form of ESTree. */
interface Syntax {
  readonly type: string;
  readonly name?: string;
  readonly value?: unknown;
  readonly await?: boolean;
  readonly computed?: boolean;
  readonly callee?: Syntax;
  readonly meta?: Syntax;
  readonly source?: Syntax | null;
}

type Parse = (text: string, options: { ecmaVersion: "latest"; sourceType: "module"; allowHashBang: true }) => Syntax;

/** Says of each file what it imports, and what in it does not run everywhere. The parser is the project's. */
export function readCode(project: string, folder: string, files: readonly string[]): CodeFile[] {
  const { parse }: { parse: Parse } = createRequire(join(project, "package.json"))("acorn");
  return files.map((file) => {
    const imports: string[] = [];
    const faults: string[] = [];
    const visit = (node: Syntax, deferred: boolean) => {
      const path = node.source?.value;
      if (typeof path === "string") imports.push(path.replace(/\?.*/, ""));
      const fault = faultOf(node, deferred);
      if (fault) faults.push(fault);
    };
    const text = readFileSync(join(folder, file), "utf8");
    try {
      walk(parse(text, { ecmaVersion: "latest", sourceType: "module", allowHashBang: true }), false, visit);
    } catch (error) {
      faults.push(String(error));
    }
    return { file, imports, faults };
  });
}

/** Visits every node but the names of members; `deferred` tells those inside of functions. */
function walk(node: Syntax, deferred: boolean, visit: (node: Syntax, deferred: boolean) => void): void {
  visit(node, deferred);
  const inside = deferred || /Function/.test(node.type);
  for (const [field, children] of Object.entries(node))
    if (field !== "key" || node.computed)
      for (const child of [children].flat()) if (isSyntax(child)) walk(child, inside, visit);
}

function isSyntax(value: unknown): value is Syntax {
  return typeof value === "object" && value !== null && "type" in value && typeof value.type === "string";
}

/** What is imported when it is needed: packages that a user may install, and files of the package by their names. */
const OPTIONAL = Object.keys(manifest.peerDependencies);
const isOptional = (path: string) => OPTIONAL.includes(path) || /^\.\/[\w./-]+\.js$/.test(path);

function faultOf(node: Syntax, deferred: boolean): string | undefined {
  const { type, name, callee, meta, source } = node;
  if (type === "ImportExpression" && !isOptional(String(source?.value))) return "a dynamic import";
  if (meta?.name === "import") return "import.meta";
  if (!deferred && (type === "AwaitExpression" || node.await)) return "a top-level await";
  if (type === "Identifier" && name === "eval") return "eval";
  if (/^(New|Call)Expression$/.test(type) && callee?.name === "Function") return "new Function";
  if (typeof source?.value === "string" && source.value.startsWith("node:")) return `an import of ${source.value}`;
  return undefined;
}

/** Throws for a fault in what others' programs may load: `entries` and what they reach. Commands and pages may do more. */
export function checkCode(code: readonly CodeFile[], entries: readonly string[]): string {
  const loaded = new Set<CodeFile>();
  const load = (path: string) => {
    const found = code.find(({ file }) => file === path);
    if (!found) throw new Error(`${path} is imported and not there`);
    if (loaded.has(found)) return;
    loaded.add(found);
    for (const each of found.imports) if (each.endsWith(".js")) load(join(dirname(path), each));
  };
  for (const entry of entries) load(join(entry));
  const wrong = [...loaded].flatMap(({ file, faults }) => faults.map((fault) => `${file} has ${fault}`));
  if (wrong.length > 0) throw new Error(wrong.join("\n"));
  const others = code.filter((each) => !loaded.has(each));
  return `${loaded.size} files that programs may load; not ${others.map(({ file }) => file).join(", ")}`;
}

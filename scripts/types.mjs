// tsc writes a file of declarations for each source. This flattens them to one file for each entry, with what users can
// reach and nothing else. What the first entry exports, the others import from there, so that a type is the same in all.

import { readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";

/** tsc begins every statement and its comment at the start of a line, and nothing else but closing brackets. */
const PIECES = /^(?=\/\*\*|\/\/\/|(?:import|export|declare|interface|type) )/m;
const DECLARATION = /^(export )?(?:declare )?(?:abstract )?(interface|type|class|const|function) ([\w$]+)/;
const LINKS = /^(import|export)(?: type)? (?:\*|\{([^}]*)\})(?: from "([^"]+)")?;/;
/** The beginning of a declaration that is not a member of another. */
const BEGINNING = /^(?=(?:declare|abstract|interface|type|class|const|function) )/gm;
/** What makes two declarations of the same text two types. */
const BRAND = /unique symbol|#private|\bprivate\b/;
/** An identifier that is not the name of a member or a parameter. */
const USE = /(?<![\w$.])[A-Za-z_$][\w$]*(?!\??:|[\w$])/g;

/**
 * Writes `<out>/<entry>.d.ts`.
 * @param {string} folder Where tsc wrote.
 * @param {string} out
 * @param {Record<string, string>} entries The source of each: { index: "src/entries/index.ts" }. The first is the one that others import.
 */
export function flattenTypes(folder, out, entries) {
  const known = new Map();
  const open = (path) => {
    if (!known.has(path)) known.set(path, parse(path, readFileSync(join(folder, path.replace(/ts$/, "d.ts")), "utf8")));
    return known.get(path);
  };
  const [[first, path], ...others] = Object.entries(entries);
  const shared = exportsOf(open, path);
  const behind = reach(open, shared, new Map());
  writeFileSync(join(out, `${first}.d.ts`), flatten(open, path, behind, new Map()));
  for (const [entry, path] of others) {
    const own = reach(open, exportsOf(open, path), shared);
    const twice = [...own.values()].find((each) => BRAND.test(each.text) && behind.get(each.name) === each);
    if (twice)
      throw new Error(`${entry}: ${twice.name} would be another type than that of ${first}, which must export it`);
    writeFileSync(join(out, `${entry}.d.ts`), flatten(open, path, own, shared, `./${first}.js`));
  }
}

/** The declarations, imports and exports of a file, by name; of an import or export, where it is declared. */
function parse(path, text) {
  const module = {
    title: "",
    references: [],
    declared: new Map(),
    imported: new Map(),
    exported: new Map(),
    stars: [],
  };
  let comment = "";
  for (const piece of text.split(PIECES)) {
    if (piece.startsWith("///")) module.references.push(piece);
    if (piece.startsWith("/**")) {
      module.title ||= comment;
      comment = piece;
      continue;
    }
    const [, exported, kind, name] = piece.match(DECLARATION) ?? [];
    if (name !== undefined) {
      const overloads = module.declared.get(name)?.text ?? "";
      module.declared.set(name, {
        name,
        kind,
        path,
        text: `${overloads}${comment}${piece.replace(exported ?? "", "")}`,
      });
      if (exported) module.exported.set(name, { name, path });
    } else {
      module.title ||= comment;
      const [, way, names, from] = piece.match(LINKS) ?? [];
      const there = from === undefined ? path : join(dirname(path), from);
      if (names === undefined && from !== undefined) module.stars.push(there);
      for (const text of (names ?? "").split(",").filter((each) => each.trim())) {
        const [origin, name = origin] = text
          .trim()
          .replace(/^type /, "")
          .split(" as ");
        module[way === "import" ? "imported" : "exported"].set(name, { name: origin, path: there });
      }
    }
    comment = "";
  }
  return module;
}

/** The declaration behind a name that a file uses. */
function find(open, path, name) {
  const module = open(path);
  const link = module.exported.get(name);
  if (link && link.path !== path) return find(open, link.path, link.name);
  const taken = module.imported.get(name);
  if (taken) return find(open, taken.path, taken.name);
  if (module.declared.has(name)) return module.declared.get(name);
  return module.stars.map((star) => find(open, star, name)).find((found) => found);
}

/** All exports of a file: name -> declaration. */
function exportsOf(open, path) {
  const { exported, stars } = open(path);
  const all = stars.flatMap((star) => [...exportsOf(open, star)]);
  return new Map([...all, ...Array.from(exported.keys(), (name) => [name, find(open, path, name)])]);
}

/** The declarations that a declaration refers to. */
function needs(open, { path, name, text }) {
  const code = text.replace(/\/\*[\s\S]*?\*\/|"[^"\n]*"/g, "");
  const names = new Set(code.match(USE));
  names.delete(name);
  const found = Array.from(names, (each) => [each, find(open, path, each)]).filter(([, there]) => there);
  const renamed = found.find(([each, there]) => there.name !== each);
  if (renamed) throw new Error(`${path}: ${renamed[1].name} is called ${renamed[0]}`);
  return found.map(([, there]) => there);
}

/** `exported` and everything that it refers to, without what is `shared`: name -> declaration. */
function reach(open, exported, shared) {
  const own = new Map();
  const add = (declaration) => {
    const { name, path } = declaration;
    const known = own.get(name);
    if (known === declaration || shared.get(name) === declaration) return;
    if (known) throw new Error(`${name} is declared in ${known.path} and in ${path}, and one entry reaches both`);
    own.set(name, declaration);
    for (const each of needs(open, declaration)) add(each);
  };
  for (const declaration of exported.values()) add(declaration);
  return own;
}

/** The text of an entry that declares `own`, and imports or re-exports what is `shared` from the file `from`. */
function flatten(open, path, own, shared, from) {
  const exported = exportsOf(open, path);
  const declarations = [...own.values()];
  const isShared = ({ name }) => shared.has(name) && !own.has(name);
  const taken = new Set(declarations.flatMap((each) => needs(open, each)).filter(isShared));
  const passed = [...exported.values()].filter(isShared);
  const names = (list, type) => list.map(({ name, kind }) => `${type(kind)}${name}`).sort();
  const line = (word, list) => (list.length > 0 ? `${word} { ${list.join(", ")} } from "${from}";\n` : "");
  return [
    ...new Set([path, ...declarations.map((each) => each.path)].flatMap((each) => open(each).references)),
    open(path).title,
    line(
      "import type",
      names([...taken], () => ""),
    ),
    line(
      "export",
      names(passed, (kind) => (/interface|type/.test(kind) ? "type " : "")),
    ),
    ...declarations.map(({ name, text }) => (exported.has(name) ? text.replace(BEGINNING, "export ") : text)),
    "export {};\n",
  ].join("");
}

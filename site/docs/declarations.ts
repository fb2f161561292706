// The API reference of an entry, from its flattened declarations in dist/: a heading, a signature and the doc comment of each name.

/** A declaration at the top level of a file, with its comment. */
interface Declaration {
  readonly name: string;
  readonly kind: string;
  readonly isExported: boolean;
  readonly comment: string;
  readonly code: string;
}

const HEAD = /^(export )?(?:declare )?(?:abstract )?(?:default )?(function|class|interface|type|const|let|enum) (\w+)/;

/** Declarations of a file as tsc writes it: each begins at the left edge and ends before the next comment or declaration there. */
function declarationsIn(text: string): Declaration[] {
  const found: Declaration[] = [];
  for (const [, comment = "", code] of text.matchAll(
    /(?:^(\/\*\*[\s\S]*?\*\/)\n)?^((?:export|declare|interface|type|abstract)\b[\s\S]*?)(?=^\/\*\*|^(?:export|declare|interface|type|abstract|import)\b|(?![\s\S]))/gm,
  )) {
    const [, exported, kind, name] = HEAD.exec(code as string) ?? [];
    if (kind && name)
      found.push({ name, kind, isExported: exported !== undefined, comment, code: (code as string).trim() });
  }
  return found;
}

/** The text of a comment as markdown: tags become paragraphs, and an example a block of code. */
function commentText(comment: string): string {
  const text = comment
    .replace(/^\/\*\*\s?|\s*\*\/$/g, "")
    .replace(/^ \* ?/gm, "")
    .trim();
  const [body = "", ...tags] = text.split(/^(?=@\w+)/m);
  const parts = tags.map((tag) => {
    const [, name, rest = ""] = /^@(\w+)\s*([\s\S]*)$/.exec(tag) ?? [];
    if (name === "example") return `\`\`\`ts\n${rest.trim()}\n\`\`\``;
    if (name === "param") return rest.trim().replace(/^(\S+)\s*/, "- `$1`: ");
    if (name === "packageDocumentation") return "";
    return `${({ throws: "Throws", returns: "Returns" } as Record<string, string>)[name as string] ?? name}: ${rest.trim()}`;
  });
  return [body.trim(), ...parts]
    .filter((part) => part !== "")
    .join("\n\n")
    .replace(/(^- .*)\n\n(?=- )/gm, "$1\n");
}

/** The reference of an entry as markdown: its functions first, then what they take and give. */
export function referenceText(name: string, declarations: string): string {
  const about = commentText(/^\/\*\*[\s\S]*?\*\//.exec(declarations)?.[0] ?? "");
  const all = declarationsIn(declarations).filter(({ isExported }) => isExported);
  const rank = ({ kind }: Declaration) => (kind === "function" ? 0 : kind === "const" ? 1 : 2);
  const sorted = all.toSorted((a, b) => rank(a) - rank(b) || a.name.localeCompare(b.name));
  const sections = sorted.map(({ name: each, comment, code }) => {
    const signature = code.replace(/^export (declare )?/, "");
    return `## ${each}\n\n${commentText(comment)}\n\n\`\`\`typescript\n${signature}\n\`\`\``;
  });
  return [`# ${name}`, about, ...sections].join("\n\n");
}

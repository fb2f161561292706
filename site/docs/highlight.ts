// Colours of code: comments, strings, numbers and words of the language, as spans of HTML.

import { escapeHtml } from "../../src/base/util/strings.ts";

const SCRIPT_WORDS =
  "abstract|as|async|await|break|case|catch|class|const|continue|declare|default|do|else|enum|export|extends|finally|for|from|function|if|implements|import|in|instanceof|interface|keyof|let|new|of|readonly|return|satisfies|static|switch|throw|try|type|typeof|using|var|void|while|yield|true|false|null|undefined|this";

/** What is coloured in scripts and in commands: the group that matches says as what. */
const SCRIPT = new RegExp(
  String.raw`(?<comment>\/\/.*|\/\*[\s\S]*?\*\/)|(?<string>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|` +
    "`(?:\\\\.|[^`\\\\])*`" +
    String.raw`)|(?<![\w$.])(?<word>${SCRIPT_WORDS})(?![\w$:])|(?<![\w$])(?<number>0x[\da-f]+|\d[\d_]*(?:\.\d+)?(?:e[+-]?\d+)?)n?(?![\w$])`,
  "gi",
);
const SHELL =
  /(?<comment>(?<=^|\s)#.*)|(?<string>"[^"\n]*"|'[^'\n]*')|(?<word>(?<=^|\n)(?:npm|npx|node|deno|bun|git|cd|export|docker))(?=\s)/g;

const LANGUAGES: Readonly<Record<string, RegExp>> = {
  ...{ ts: SCRIPT, typescript: SCRIPT, js: SCRIPT, javascript: SCRIPT, json: SCRIPT },
  ...{ sh: SHELL, bash: SHELL },
};

/** Code as HTML, coloured if its language is one of those above. */
export function highlight(code: string, language: string): string {
  const parts = LANGUAGES[language];
  if (!parts) return escapeHtml(code);
  let [html, from] = ["", 0];
  for (const match of code.matchAll(parts)) {
    const [kind] = Object.entries(match.groups ?? {}).find(([, text]) => text !== undefined) ?? [];
    html += escapeHtml(code.slice(from, match.index));
    html += `<span class="code-${kind}">${escapeHtml(match[0])}</span>`;
    from = match.index + match[0].length;
  }
  return html + escapeHtml(code.slice(from));
}

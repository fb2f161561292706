// Cuts Markdown into passages, each with the headings that it stands under and its address.

/** Characters of a passage: about as many as the 256 tokens that the model reads. */
const LONGEST = 1000;

export interface Passage {
  /** The headings above it. */
  readonly title: string;
  readonly url: string;
  readonly text: string;
}

/** The passages of a document; `url` is its address. */
export function passagesOf(markdown: string, url: string): Passage[] {
  const passages: Passage[] = [];
  const anchors = new Map<string, number>();
  const headings: string[] = []; // by level
  let at = url;
  let text = "";
  let isCode = false;
  const end = () => {
    if (text.trim()) passages.push({ title: headings.filter(Boolean).join(" › "), url: at, text: text.trim() });
    text = "";
  };
  for (const line of markdown.split("\n")) {
    const [, marks, heading] = (!isCode && /^(#+) +(.*)/.exec(line)) || [];
    if (marks && heading) {
      end();
      headings.length = marks.length - 1;
      headings.push(plain(heading));
      at = `${url}#${anchorOf(plain(heading), anchors)}`;
    } else if (line.startsWith("```")) isCode = !isCode;
    else if (!/^\|[-:| ]+\|$/.test(line)) {
      if (text.length + line.length > LONGEST) end();
      text += `${isCode ? line : plain(line)}\n`;
    }
  }
  end();
  return passages;
}

/** A line without marks, and of links their text. */
const plain = (line: string) => line.replace(/!?\[([^\]]*)\]\([^)]*\)/g, "$1").replace(/\*\*|`/g, "");

/** What GitHub calls a heading in addresses: its letters and digits, and a number where several are the same. */
function anchorOf(heading: string, anchors: Map<string, number>): string {
  const kept = heading.toLowerCase().replace(/[^\p{L}\p{M}\p{N} _-]/gu, "");
  const name = kept.replaceAll(" ", "-");
  const count = anchors.get(name) ?? 0;
  anchors.set(name, count + 1);
  return count === 0 ? name : `${name}-${count}`;
}

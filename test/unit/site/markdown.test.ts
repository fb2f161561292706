import { expect, test } from "vitest";
import { renderMarkdown } from "../../../site/docs/markdown.ts";

const render = (text: string) =>
  renderMarkdown(text, { link: (target) => target, image: (target) => target, example: () => undefined });

test("the search has the words of lists and tables once, without their marks", () => {
  const { parts } = render(
    "# Title\n\n## Part\n\n- one `two` *three*\n- four\n\n| five |\n|---|\n| six |\n\n```\nseven\n```",
  );
  const [, part] = parts;
  expect(part?.text.trim().split(/\s+/)).toEqual(["Part", "one", "two", "three", "four", "five", "six", "seven"]);
});

test("markup in code and in attributes is escaped", () => {
  expect(render('# Title\n\n```\n<a href="x">&\n```').html).toContain("&lt;a href=&quot;x&quot;&gt;&amp;");
  expect(render("# Title\n\n[a](b.md 'say \"no\"')").html).toContain('title="say &quot;no&quot;"');
});

test("code is coloured and stays the same text", () => {
  const { html } = render('# Title\n\n```ts\nconst a = "b<c"; // d\nx.from(0x1f)\n```\n\n```sh\nnpm test # e\n```');
  for (const part of ["word", "string", "comment", "number"]) expect(html).toContain(`<span class="code-${part}">`);
  expect(html).toContain('<span class="code-string">&quot;b&lt;c&quot;</span>');
  expect(html).toContain("x.from("); // a name, not the word of the language
  expect(html).toContain('<span class="code-comment"># e</span>');
});

test("a link whose text is the name of a file has the title of the document", () => {
  const options = { link: (target: string) => target, image: (target: string) => target, example: () => undefined };
  const { html } = renderMarkdown("# A\n\nSee [b.md](b.md#c) and [this](b.md).", {
    ...options,
    titleOf: () => "B & b",
  });
  expect(html).toContain('<a href="b.md#c">B &amp; b</a>');
  expect(html).toContain('<a href="b.md">this</a>');
});

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

/** A figure whose text takes a style of its own; `description` says in words what is to be seen. */
export function drawSvg(
  { width, height }: { readonly width: number; readonly height: number },
  { title, description }: { readonly title: string; readonly description: string },
  style: string,
  parts: readonly string[],
): string {
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" font-family="system-ui, sans-serif" font-size="12" role="img" aria-labelledby="title desc">`,
    `<title id="title">${plain(title)}</title>`,
    `<desc id="desc">${plain(description)}</desc>`,
    `<style>${style}</style>`,
    ...parts,
    "</svg>\n",
  ].join("\n");
}

/** Text as content of an element. */
export const plain = (text: string): string =>
  text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll('"', "&quot;");

// A head as a file: SVG, PNG, CSV, or a page that stands alone.

import { escapeHtml } from "../../../src/util/escape.ts";
import type { Attended } from "../../worker/inspect.ts";
import { make } from "../dom.ts";

/** Pixels of PNG for one of the figure. */
const SCALE = 2;

/** Hands a file to the browser. */
function save(name: string, content: Blob): void {
  const href = URL.createObjectURL(content);
  make("a", { href, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(href), 60_000);
}

/** The weights [queries, keys] with the words; floats have all of their digits. */
export function csvOf({ words, weights }: Attended): string {
  const quote = (word: string) => `"${word.replaceAll('"', '""')}"`;
  const n = words.length;
  const rows = words.map((word, i) => [quote(word), ...weights.subarray(i * n, (i + 1) * n)].join(","));
  return [["query", ...words.map(quote)].join(","), ...rows, ""].join("\r\n");
}

/** A page with the figure, the next tokens and a link back, without any other file. */
function pageOf({ words, guesses }: Attended, title: string, svg: string, link: string): string {
  const next = guesses.map(({ word, probability, before }) => {
    const without = before === undefined ? "" : `<td>${before.toFixed(4)}</td>`;
    return `<tr><td>${escapeHtml(word)}</td><td>${probability.toFixed(4)}</td>${without}</tr>`;
  });
  const changed = guesses[0]?.before === undefined ? "" : "<th>unchanged</th>";
  return `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${escapeHtml(title)}</title>
<style>
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }
body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
figure { margin: 0; overflow-x: auto; }
td, th { padding: 0 1rem 0 0; text-align: start; font-variant-numeric: tabular-nums; }
</style>
<h1>${escapeHtml(title)}</h1>
<p>${escapeHtml(words.join(" "))}</p>
<figure>${svg}</figure>
<h2>Next token</h2>
<table><tr><th>token</th><th>probability</th>${changed}</tr>${next.join("")}</table>
<p><a href="${escapeHtml(link)}">The same view, live</a></p>
</html>
`;
}

/** The figure as pixels, on white. */
async function pngOf(svg: string): Promise<Blob> {
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svg)}`;
  await image.decode();
  const canvas = make("canvas", { width: image.width * SCALE, height: image.height * SCALE });
  const context = canvas.getContext("2d");
  if (!context) throw new Error("This browser draws no pixels.");
  context.fillStyle = "#fff";
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise((resolve, reject) =>
    canvas.toBlob((blob) => (blob ? resolve(blob) : reject(new Error("This browser makes no PNG."))), "image/png"),
  );
}

/** Buttons that save what is shown; `figure` draws the head as SVG, `onError` hears why there is no file. */
export function exportButtons(
  shown: () => Attended | undefined,
  figure: (view: Attended, title: string) => Promise<string>,
  onError: (message: string) => void,
): HTMLButtonElement[] {
  const kinds: Record<string, (view: Attended, title: string) => Promise<Blob>> = {
    SVG: async (view, title) => new Blob([await figure(view, title)], { type: "image/svg+xml" }),
    PNG: async (view, title) => pngOf(await figure(view, title)),
    CSV: async (view) => new Blob([csvOf(view)], { type: "text/csv;charset=utf-8" }),
    HTML: async (view, title) => {
      return new Blob([pageOf(view, title, await figure(view, title), location.href)], {
        type: "text/html;charset=utf-8",
      });
    },
  };
  return Object.entries(kinds).map(([kind, draw]) => {
    const button = make("button", { type: "button", textContent: kind });
    button.addEventListener("click", async () => {
      const view = shown();
      if (!view) return;
      const name = `layer-${view.layer}-head-${view.head}`;
      try {
        save(`${name}.${kind.toLowerCase()}`, await draw(view, `Layer ${view.layer}, head ${view.head}`));
      } catch (error) {
        onError((error as Error).message);
      }
    });
    return button;
  });
}

// A head as a file: SVG, PNG, CSV, or a page without other files.

import { escapeHtml } from "../../../src/base/util/strings.ts";
import type { Attended } from "../../worker/inspect.ts";
import { make, showMessage } from "../dom.ts";
import { csvOf, saveFile } from "../save.ts";

/** Pixels of PNG for one of the figure. */
const SCALE = 2;

/** The weights [queries, keys] with the words; floats have all of their digits. */
function tableOf({ words, weights }: Attended): (string | number)[][] {
  const n = words.length;
  return [["query", ...words], ...words.map((word, i) => [word, ...weights.subarray(i * n, (i + 1) * n)])];
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
<figure>${svg}<figcaption>Rows are tokens that look, columns those they look at; light is 0, dark is 1.</figcaption></figure>
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

/** Buttons that save what is shown, and a line that says what became of it; `figure` draws the head as SVG. */
export function exportControls(
  shown: () => Attended | undefined,
  figure: (view: Attended, title: string) => Promise<string>,
): HTMLElement[] {
  const kinds: Record<string, readonly [type: string, draw: (view: Attended, title: string) => Promise<BlobPart>]> = {
    SVG: ["image/svg+xml", figure],
    PNG: ["image/png", async (view, title) => pngOf(await figure(view, title))],
    CSV: ["text/csv;charset=utf-8", async (view) => csvOf(tableOf(view))],
    HTML: [
      "text/html;charset=utf-8",
      async (view, title) => {
        const link = location.href;
        return pageOf(view, title, await figure(view, title), link);
      },
    ],
  };
  const status = make("p", { className: "quiet small" });
  status.setAttribute("role", "status");
  const say = (text: string, isError: boolean) => {
    showMessage(status, text, isError);
  };
  const buttons = Object.entries(kinds).map(([kind, [type, draw]]) => {
    const button = make("button", { type: "button", textContent: kind });
    button.addEventListener("click", async () => {
      const view = shown();
      if (!view) return say("No head is shown yet.", true);
      const { layer, head, before } = view;
      const name = `layer-${layer}-head-${head}.${kind.toLowerCase()}`;
      try {
        const content = await draw(view, `Layer ${layer}, head ${head}${before ? ", with changes" : ""}`);
        saveFile(name, type, content);
        say(`Saved as ${name}.`, false);
      } catch (error) {
        say((error as Error).message, true);
      }
    });
    return button;
  });
  return [...buttons, status];
}

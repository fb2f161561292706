// Numbers as a table that scrolls.

import { make } from "./dom.ts";

/** A table of numbers that scrolls where it is wider than the page; the first cell of each row names it. */
export function createTable(
  caption: string,
  columns: readonly string[],
  rows: readonly (readonly string[])[],
): HTMLElement {
  const head = columns.map((name, i) =>
    make("th", { textContent: name, scope: "col", className: i > 0 ? "number" : "" }),
  );
  const body = rows.map(([name = "", ...cells]) =>
    make(
      "tr",
      {},
      make("th", { textContent: name, scope: "row" }),
      ...cells.map((text) => make("td", { textContent: text, className: "number" })),
    ),
  );
  const table = make(
    "table",
    {},
    make("caption", { textContent: caption }),
    make("thead", {}, make("tr", {}, ...head)),
    make("tbody", {}, ...body),
  );
  // A box that scrolls must be reachable by the keyboard.
  return make("div", { className: "scroll", tabIndex: 0, role: "region", ariaLabel: caption }, table);
}

// Where the text of the site's figures is: a number of an axis is in the middle of its line, or ends before it.

import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { createChart } from "../../../site/src/chart.ts";
import { drawVariant } from "../../../site/src/variant-picture.ts";
import { SmallElement, smallDocument } from "../../support/small-document.ts";

const WIDTH = 500;

beforeAll(() => {
  vi.stubGlobal("document", smallDocument);
  // Says the width of the page at once.
  class Observer {
    readonly #seen: (entries: readonly unknown[]) => void;
    constructor(seen: (entries: readonly unknown[]) => void) {
      this.#seen = seen;
    }
    observe() {
      this.#seen([{ contentRect: { width: WIDTH } }]);
    }
  }
  vi.stubGlobal("ResizeObserver", Observer);
});
afterAll(() => {
  vi.unstubAllGlobals();
});

/** The texts of a figure, each with its place and its anchor. */
const textsOf = (figure: SmallElement) =>
  figure.all("text").map(({ attributes, children }) => ({
    text: children.join(""),
    x: Number(attributes.get("x")),
    anchor: attributes.get("text-anchor") ?? "start",
  }));

test("numbers below a chart are centred, those beside it and the names at its right end there", () => {
  const chart = createChart();
  chart.show({
    ...{ title: "a", about: "b", x: { label: "tokens", ticks: [0, 50, 100], range: [0, 100] } },
    y: { label: "bytes", ticks: [0, 1], range: [0, 1] },
    lines: [
      {
        name: "line",
        points: [
          [0, 0],
          [100, 1],
        ],
      },
    ],
    marks: [
      { x: 20, name: "left" },
      { x: 90, name: "right" },
    ],
  });
  const figure = chart.element as unknown as SmallElement;
  // The plot lies between 52 and 488.
  expect(textsOf(figure)).toEqual([
    { text: "0", x: 46, anchor: "end" },
    { text: "1", x: 46, anchor: "end" },
    { text: "0", x: 52, anchor: "middle" },
    { text: "50", x: 270, anchor: "middle" },
    { text: "100", x: 488, anchor: "middle" },
    { text: "left", x: expect.closeTo(143.2, 6), anchor: "start" },
    { text: "right", x: expect.closeTo(440.4, 6), anchor: "end" },
    { text: "tokens", x: 488, anchor: "end" },
    { text: "bytes", x: 0, anchor: "start" },
  ]);
});

test("the name of a head is in the middle of its circle", () => {
  const picture = new SmallElement("svg");
  drawVariant(picture as unknown as SVGSVGElement, "gqa", 3);
  const middles = picture.all("circle").map(({ attributes }) => Number(attributes.get("cx")));
  const names = ["q1", "q2", "q3", "q4"];
  expect(textsOf(picture)).toEqual(names.map((text, i) => ({ text, x: middles[i], anchor: "middle" })));
});

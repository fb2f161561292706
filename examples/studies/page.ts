// The page of a study: all have the same parts in the same order.

import { mean } from "./study.ts";

/** The parts of a page, in Markdown. */
export interface Page {
  /** The folder of the study. */
  readonly name: string;
  readonly title: string;
  /** What asked for it, a row of docs/seeds.md or a paper. */
  readonly from: string;
  readonly question: string;
  /** What the numbers say, and of how many seeds. */
  readonly answer: string;
  /** Tables and figures. */
  readonly results: string;
  /** Further sections by their titles. */
  readonly sections?: Readonly<Record<string, string>>;
  readonly method: string;
  readonly limits: string;
  /** Minutes that the command takes on one core. */
  readonly minutes: number;
  /** The version of PyTorch, if models are trained. */
  readonly torch?: string;
}

/** README.md: text alone, so that the same result gives the same page. */
export function pageOf({ name, title, from, question, answer, results, sections, ...rest }: Page): string {
  const { method, limits, minutes, torch } = rest;
  const command = `npm run study -- ${name}`;
  const parts = {
    Answer: answer,
    Results: results,
    ...sections,
    Method: method,
    Limits: limits,
    "Run it": [
      `\`${command}\` takes about ${minutes} minutes of one core`,
      torch === undefined ? "." : `, and PyTorch (here ${torch}; [how to install it](../README.md)).`,
      ` \`${command} --figures\` writes the figures and this page from [result.json](result.json) alone.`,
      torch === undefined
        ? ""
        : " Weights stay in `node_modules/.cache`. Another machine may round differently, and its numbers then differ in the last digits, more where a loss still falls.",
    ].join(""),
  };
  const text = Object.entries(parts).map(([heading, content]) => `## ${heading}\n\n${content}\n`);
  return [
    `# ${title}\n`,
    `${from} \`${command}\` makes every number and figure here; this page is written from [result.json](result.json).\n`,
    `**Question.** ${question}\n`,
    ...text,
  ].join("\n");
}

/** A Markdown table; the first row is its head. */
export function table([head, ...rows]: readonly (readonly (string | number)[])[]): string {
  const line = (cells: readonly (string | number)[]) => `| ${cells.join(" | ")} |`;
  return [line(head!), `|${head!.map(() => "---|").join("")}`, ...rows.map(line)].join("\n");
}

/** A row of the fourth tutorial. */
export const rowOf = (row: string): string =>
  `Row ${row} of [the tutorials](../../../docs/seeds.md#004-multi-head-attention-phase-7).`;

/** "1, 2 and 4". */
export const listText = (items: readonly (string | number)[], joint = "and"): string =>
  [items.slice(0, -1).join(", "), ...items.slice(-1)].filter((text) => text !== "").join(` ${joint} `);

export const percent = (share: number): string => `${Math.round(100 * share)} %`;

/** The mean of the seeds, and their range. */
export function spread(values: readonly number[], decimals: number): string {
  const [middle, low, high] = [mean(values), Math.min(...values), Math.max(...values)];
  return `${middle.toFixed(decimals)} (${low.toFixed(decimals)} to ${high.toFixed(decimals)})`;
}

import { type BuildName, buildNames } from "./builds.ts";
import type { Effort } from "./measure.ts";

/** The options of the command line. */
export interface Context {
  readonly quick: boolean;
  readonly effort: Effort;
  readonly builds: readonly BuildName[];
  /** Whether --only selects a row with this label: the text of its first columns. */
  wants(label: string): boolean;
}

/** A column: its title, its width, and the text of a row. */
export type Column<R> = readonly [title: string, width: number, text: (row: R) => string];

/** A table of the benchmark, whose rows are measured one after the other. */
export interface Part {
  readonly name: string;
  /** Measures and prints the rows; returns them as they are written to the JSON file. */
  run(context: Context): Promise<readonly object[]>;
}

export function part<R extends object>(
  name: string,
  columns: readonly Column<R>[],
  rows: (context: Context) => AsyncIterable<R>,
): Part {
  const print = (cell: (column: Column<R>) => string) =>
    console.log(columns.map((column) => cell(column).padEnd(column[1])).join(" | "));
  return {
    name,
    async run(context) {
      const found: R[] = [];
      for await (const row of rows(context)) {
        if (found.push(row) === 1) {
          console.log(`\n${name}`);
          print(([title]) => title);
        }
        print(([, , text]) => text(row));
      }
      return found;
    },
  };
}

/** The relaxed build, unless only the other one was selected. */
export function fasterBuild({ builds }: Context): BuildName {
  return builds.at(-1) ?? buildNames[buildNames.length - 1]!;
}

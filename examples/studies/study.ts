/** A study of small trained models: what is measured, and the figures and text of it. */
export interface Study {
  /**
   * Trains and measures.
   * @param cache Folder for weights, which are not committed. It may not exist yet.
   * @param report Takes lines about the progress.
   */
  measure(cache: URL, report: (line: string) => void): Promise<unknown>;
  /**
   * The figures by the names of their files: the same for the same result.
   * @param result What `measure` gave; a study declares it with its own type.
   */
  drawFigures(result: unknown): Record<string, string>;
  /** The text of README.md, likewise. */
  writePage(result: unknown): string;
}

/** What is made of a result, by the names of the files. */
export const filesOf = (study: Study, result: unknown): Record<string, string> => {
  return { ...study.drawFigures(result), "README.md": study.writePage(result) };
};

/** Text of result.json: lists of numbers take one line each. */
export function writeResult(result: unknown): string {
  const text = JSON.stringify(result, null, 1);
  return `${text.replaceAll(/\[[\s\d.,e+-]+\]/g, (list) => list.replaceAll(/\s+/g, " ").replaceAll(/\[ | \]/g, (end) => end.trim()))}\n`;
}

/** A number with a few decimals, for results that are committed: the rest of its digits differs between machines. */
export const round = (value: number, decimals = 4): number => Number(value.toFixed(decimals));

export const mean = (values: readonly number[]): number =>
  values.reduce((sum, value) => sum + value, 0) / values.length;

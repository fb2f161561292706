// Which cell is an answer: heads that look there are named by it.

import { visible } from "../../../src/base/util/strings.ts";
import type { Answer } from "../../worker/inspect.ts";
import { make } from "../dom.ts";
import type { Cell } from "../heatmap.ts";

export interface AnswerControl {
  /** A cell of the address, as "16.6"; undefined if it names none. */
  read(text: string): Answer | undefined;
  /** Says what heads were looked for that find it; `isChosen` is whether the visitor chose it. */
  show(words: readonly string[], answer: Answer | undefined, isChosen: boolean): void;
  /** The cell under the cursor. */
  point(cell: Cell): void;
}

/** Fills a line; `onChange` gets the answer for the address. */
export function answerControl(line: HTMLElement, onChange: (answer: string) => void): AnswerControl {
  const says = make("span");
  const take = make("button", { type: "button", textContent: "This cell is an answer", className: "small" });
  const forget = make("button", { type: "button", textContent: "Forget it", className: "small", hidden: true });
  let at: Cell = { query: 0, key: 0 };
  take.addEventListener("click", () => onChange(`${at.query}.${at.key}`));
  forget.addEventListener("click", () => {
    take.focus();
    onChange("");
  });
  line.append(says, " ", take, " ", forget);
  return {
    read(text) {
      const [, query, key] = /^(\d+)\.(\d+)$/.exec(text) ?? [];
      return key === undefined ? undefined : { query: Number(query), key: Number(key) };
    },
    show(words, answer, isChosen) {
      const named = (i: number) => `“${visible(words[i] as string)}”`;
      forget.hidden = !isChosen;
      says.textContent = answer
        ? `Heads that look from ${named(answer.query)} at ${answer.query} to ${named(answer.key)} at ${answer.key} find ${isChosen ? "your" : "the model’s"} answer.`
        : "The model’s answer is not in the text.";
    },
    point(cell) {
      at = cell;
      take.disabled = cell.key > cell.query;
    },
  };
}

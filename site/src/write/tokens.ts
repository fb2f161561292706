// What the model wrote, token by token: the less likely, the more orange. A token shows what else might have come, and each of these
// is a way to go on from there.

import { visible } from "../../../src/base/util/strings.ts";
import type { WrittenToken } from "../../worker/written-tokens.ts";
import { make } from "../dom.ts";

export interface TokensView {
  /** Begins a text that goes on with a prompt. */
  begin(prompt: string): void;
  add(tokens: readonly WrittenToken[]): void;
  /** The text was changed: its tokens are no longer these. */
  clear(): void;
}

const percent = (share: number): string =>
  share < 0.001 ? "<\u00a00.1\u00a0%" : `${(100 * share).toFixed(share < 0.0995 ? 1 : 0)}\u00a0%`;

/** Fills a part of the page; `onChoice` gets the text up to another token, and that token. */
export function createTokens(part: HTMLElement, onChoice: (text: string) => void): TokensView {
  const list = make("div", { className: "written", role: "group", ariaLabel: "What the model wrote, token by token" });
  const about = make("p", { className: "small" });
  const others = make("div", { className: "actions", role: "group", ariaLabel: "What else might have come" });
  const panel = make("div", { className: "others" }, about, others);
  part.append(make("h2", { textContent: "How sure it was" }), list, panel);
  const HINT =
    "The more orange a token, the less likely the model found it. Choose one to see what else might have come.";
  let prompt = "";
  let tokens: readonly WrittenToken[] = [];

  const choose = (at: number): void => {
    for (const [i, each] of [...list.children].entries()) {
      each.setAttribute("aria-pressed", String(i === at));
      (each as HTMLElement).tabIndex = i === at ? 0 : -1;
    }
    const { text, probability, others: rest } = tokens[at] as WrittenToken;
    const before =
      prompt +
      tokens
        .slice(0, at)
        .map((each) => each.text)
        .join("");
    about.textContent = `“${visible(text.trim() || text)}” had ${percent(probability)}. Go on with another token instead:`;
    others.replaceChildren(
      ...rest.map((other) => {
        const label = `${visible(other.text.trim() || other.text)} ${percent(other.probability)}`;
        const button = make("button", { type: "button", textContent: label });
        button.addEventListener("click", () => onChoice(before + other.text));
        return button;
      }),
    );
  };
  list.addEventListener("keydown", (event) => {
    const buttons = [...list.querySelectorAll("button")];
    const here = buttons.indexOf(document.activeElement as HTMLButtonElement);
    const moves: Readonly<Record<string, number>> = {
      ...{ ArrowLeft: here - 1, ArrowRight: here + 1, Home: 0, End: buttons.length - 1 },
    };
    const to = moves[event.key];
    if (here < 0 || to === undefined || !buttons[to] || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault(); // the page would scroll
    buttons[to].focus();
    choose(to);
  });
  const clear = (): void => {
    tokens = [];
    list.replaceChildren();
    others.replaceChildren();
    about.textContent = "";
    part.hidden = true;
  };
  clear();
  return {
    begin(given) {
      clear();
      prompt = given;
    },
    add(more) {
      if (more.length === 0) return;
      if (tokens.length === 0) about.textContent = HINT;
      part.hidden = false;
      const first = tokens.length;
      tokens = [...tokens, ...more];
      list.append(
        ...more.map(({ text, probability }, i) => {
          const button = make("button", {
            type: "button",
            textContent: text.replaceAll("\n", "↵\n"),
            title: percent(probability),
            tabIndex: first + i === 0 ? 0 : -1,
          });
          button.style.setProperty("--doubt", (1 - probability).toFixed(3));
          button.addEventListener("click", () => choose(first + i));
          return button;
        }),
      );
    },
    clear,
  };
}

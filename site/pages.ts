// The pages of the site, in the order of its menu. Each has its content in pages/NAME.html and its script in src/NAME.ts.

export interface Page {
  /** The name of its files; `index` is the first page. */
  readonly name: string;
  /** In the menu. */
  readonly label: string;
  readonly title: string;
  /** What one does there, in a sentence: the line below the title, and what search engines show. */
  readonly about: string;
}

export const PAGES: readonly Page[] = [
  {
    name: "index",
    label: "Start",
    title: "Attention that you can see",
    about: "Real language models, on the processor of this device, with every head open to look at.",
  },
  {
    name: "write",
    label: "Write",
    title: "Write with a model",
    about: "A model goes on with your text, or answers you: stop it, change a word, and let it go on from there.",
  },
  {
    name: "inspector",
    label: "Inspect",
    title: "Attention inspector",
    about: "Type a text and see where every head of a model looks, why it looks there, and what changes without it.",
  },
  {
    name: "docs",
    label: "Docs",
    title: "Documentation",
    about: "Guides, the API, and examples that run where you read them.",
  },
];

// The pages of the site, in the order of its menu. Each has its content in pages/NAME.html and its script in src/NAME.ts.

export interface Page {
  /** The name of its files; `index` is the first page. */
  readonly name: string;
  /** In the menu. */
  readonly label: string;
  /** The group of the menu that it belongs to, or the foot of all pages. */
  readonly group: Group;
  readonly title: string;
  /** What one does there, in a sentence: the line below the title, and what search engines show. */
  readonly about: string;
  /** Modules of worker/ that the engine reads for its first tasks. Default none: the page has no engine, or not at once. */
  readonly tasks?: readonly string[];
}

/** The menu, in its order; its entries lead to the first page of each group. */
export const GROUPS = ["Start", "See", "Try", "Docs"] as const;
export type Group = (typeof GROUPS)[number] | "Foot";

export const PAGES: readonly Page[] = [
  {
    name: "index",
    label: "Start",
    group: "Start",
    title: "Run language models in any JavaScript runtime, and see how they think",
    about:
      "WebAssembly SIMD kernels for attention and whole models, on the CPU: in browsers, Node, Deno, Bun and Workers. The story here is told by a model that runs in this page.",
    tasks: ["story"],
  },
  {
    name: "inspector",
    label: "Inspect",
    group: "See",
    title: "Attention inspector",
    about: "Type a text and see where every head of a model looks, why it looks there, and what changes without it.",
    tasks: ["inspect-page"],
  },
  {
    name: "gallery",
    label: "Gallery",
    group: "See",
    title: "What heads do",
    about:
      "Heads of two small trained models by what they do, and those that a tutorial draws by hand beside what training made.",
    tasks: ["tutorial", "gallery"],
  },
  {
    name: "write",
    label: "Write",
    group: "Try",
    title: "Write with a model",
    about: "A model goes on with your text, or answers you: stop it, change a word, and let it go on from there.",
    tasks: ["write"],
  },
  {
    name: "speed",
    label: "Speed",
    group: "Try",
    title: "How fast is it here?",
    about:
      "A model's tokens a second, its first token and its memory on this device: the model of the site, one of the hub, or your own file.",
    tasks: ["speed"],
  },
  {
    name: "positions",
    label: "Positions",
    group: "See",
    title: "How attention sees positions",
    about:
      "Six ways to encode the order of tokens, side by side: where each puts its weight, and what happens beyond the trained length.",
  },
  {
    name: "variants",
    label: "Variants",
    group: "See",
    title: "What attention keeps",
    about:
      "Six variants of attention: what each stores for a token and reads for the next one, in bytes and in time on this device.",
    tasks: ["variants"],
  },
  {
    name: "embeddings",
    label: "Embeddings",
    group: "Try",
    title: "Lines by meaning",
    about:
      "An encoder turns each line into a vector; lines with vectors alike are sorted, compared and put into clusters.",
    tasks: ["embed"],
  },
  {
    name: "lessons",
    label: "Lessons",
    group: "See",
    title: "Five lessons",
    about: "How attention works, in five questions that one answers by looking: for a class, or for oneself.",
  },
  {
    name: "configure",
    label: "Configure",
    group: "Foot",
    title: "What models cost",
    about: "The sizes of a model for a budget, with a reason for each; and what any model takes on this device.",
    tasks: ["configure"],
  },
  {
    name: "docs",
    label: "Docs",
    group: "Docs",
    title: "Documentation",
    about: "Guides, the API, and examples that run where you read them.",
  },
  {
    name: "doctor",
    label: "Doctor",
    group: "Foot",
    title: "Does it work here?",
    about:
      "What this browser can do, whether headwise computes the published bits in it, and how fast it is on this device.",
    tasks: ["diagnose"],
  },
];

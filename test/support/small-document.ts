// As much of a document as functions need that draw SVG: elements with attributes and children, and nothing that is laid out.

export class SmallElement {
  readonly attributes = new Map<string, string>();
  readonly dataset: Record<string, string> = {};
  readonly tag: string;
  children: (SmallElement | string)[] = [];

  constructor(tag: string) {
    this.tag = tag;
  }

  setAttribute(name: string, value: string): void {
    this.attributes.set(name, value);
  }

  append(...children: readonly (SmallElement | string)[]): void {
    this.children.push(...children);
  }

  replaceChildren(...children: readonly (SmallElement | string)[]): void {
    this.children = [...children];
  }

  addEventListener(): void {}

  /** All elements of this tag within. */
  all(tag: string): SmallElement[] {
    const within = this.children.filter((child) => typeof child !== "string");
    return within.flatMap((child) => [...(child.tag === tag ? [child] : []), ...child.all(tag)]);
  }
}

/** What stands for `document`. */
export const smallDocument = {
  createElement: (tag: string): SmallElement => new SmallElement(tag),
  createElementNS: (_: string, tag: string): SmallElement => new SmallElement(tag),
};

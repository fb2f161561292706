/** Token ids 0..94 are the printable ASCII characters 32..126; 95 is the newline. */
export const vocabulary: string = `${Array.from({ length: 95 }, (_, id) => String.fromCharCode(32 + id)).join("")}\n`;

export const vocabSize: number = vocabulary.length;

export function encode(text: string): number[] {
  return Array.from(text, (character) => {
    const id = vocabulary.indexOf(character);
    if (id < 0)
      throw new RangeError(`encode: text expected printable ASCII or newline, got ${JSON.stringify(character)}`);
    return id;
  });
}

export function decode(tokens: Iterable<number>): string {
  return Array.from(tokens, (id) => vocabulary[id] ?? "?").join("");
}

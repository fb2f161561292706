// Small vocabularies from a corpus: enough to have merges to make.

/** The characters that byte-level BPE writes bytes in, by byte. */
export function byteCharacters() {
  let others = 0;
  return Array.from({ length: 256 }, (_, byte) => {
    const isShown = (byte > 32 && byte < 127) || (byte > 160 && byte !== 173);
    return String.fromCodePoint(isShown ? byte : 256 + others++);
  });
}

/** `count` merges of the most frequent neighbours within words. */
export function trainBpe(corpus, count) {
  const characters = byteCharacters();
  const words = corpus
    .flatMap((text) => text.match(/ ?\p{L}+| ?\p{N}| ?[^\s\p{L}\p{N}]+|\s+/gu) ?? [])
    .map((word) => Array.from(new TextEncoder().encode(word), (byte) => characters[byte]));
  const merges = [];
  while (merges.length < count) {
    const counts = new Map();
    for (const word of words)
      for (let i = 1; i < word.length; i++) {
        const pair = `${word[i - 1]} ${word[i]}`;
        counts.set(pair, (counts.get(pair) ?? 0) + 1);
      }
    const [best] = [...counts].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1))[0];
    const [left, right] = best.split(" ");
    merges.push([left, right]);
    for (const word of words)
      for (let i = 1; i < word.length; i++)
        if (word[i - 1] === left && word[i] === right) word.splice(i - 1, 2, left + right);
  }
  return merges;
}

/** Special tokens, all characters of the corpus at the beginning and within a word, and the most frequent words and endings. */
export function trainWordPiece(corpus, count) {
  const words = corpus
    .map((text) => text.toLowerCase().normalize("NFD").replace(/\p{Mn}/gu, ""))
    .flatMap((text) => text.match(/[\p{L}\p{N}]+|[^\s\p{L}\p{N}]/gu) ?? []);
  const characters = [...new Set(words.join(""))].sort();
  const counts = new Map();
  for (const word of words)
    for (const piece of [word, ...[2, 3].map((size) => (word.length > size + 1 ? `##${word.slice(-size)}` : ""))])
      if (piece !== "") counts.set(piece, (counts.get(piece) ?? 0) + 1);
  const frequent = [...counts].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1)).map(([piece]) => piece);
  const all = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", ...characters, ...characters.map((one) => `##${one}`), ...frequent];
  return [...new Set(all)].slice(0, count);
}

/** Queries, and the document that has the best answer to each. */
export const QUERIES = [
  ["search by vectors", "guide/search.md"],
  ["rerank documents by a query", "guide/retrieval.md"],
  ["zero-shot classification with labels of my own", "guide/retrieval.md"],
  ["save a session and restore it later", "guide/decoders.md"],
  ["stop generation after a number of tokens", "guide/text.md"],
  ["how are heads detected as induction heads", "guide/heads.md"],
  ["Whisper transcribes audio", "guide/encoders.md"],
  ["which headers do threads need on my host", "hosting.md"],
  ["content security policy for wasm", "hosting.md"],
  ["how is a new weight format added", "CONTRIBUTING.md"],
];

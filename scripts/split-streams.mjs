// The streams of a module, from which src/wasm/streams.ts joins it: the same steps, from the other side.

import {
  BR_TABLE,
  CODE,
  IMMEDIATES,
  joinBytes,
  leb,
  ModuleReader,
  OPCODES,
  OTHERS,
  rowOf,
  SECTIONS,
} from "../build/wasm-bytes.js";

/** The length of the module and a list of the lengths of its streams, as LEB128, then the streams. */
export function splitStreams(bytes) {
  const reader = new ModuleReader(bytes);
  const streams = Array.from({ length: OPCODES + 1 + 2 * IMMEDIATES.length }, () => []);
  /** Appends what `read` reads to a stream. Returns what it returns. */
  const take = (stream, read) => {
    const { at } = reader;
    const result = read();
    streams[stream].push(...bytes.subarray(at, reader.at));
    return result;
  };
  const takeBytes = (stream, count) =>
    take(stream, () => {
      reader.at += count;
    });
  const takeNumber = (stream) => take(stream, () => reader.number());
  const takeInstruction = () => {
    const opcode = take(OPCODES, () => reader.opcode());
    const row = rowOf(opcode);
    const [, numbers, others] = IMMEDIATES[row];
    const stream = OPCODES + 1 + 2 * row;
    const count = opcode === BR_TABLE ? takeNumber(stream) + 1 : numbers;
    for (let i = 0; i < count; i++) takeNumber(stream + (i & 1));
    takeBytes(stream, others);
  };

  takeBytes(OTHERS, SECTIONS);
  while (reader.at < bytes.length) {
    const section = takeNumber(OTHERS);
    const until = takeNumber(OTHERS) + reader.at;
    if (section === CODE)
      for (let bodies = takeNumber(OTHERS); bodies > 0; bodies--) {
        const bodyEnd = takeNumber(OTHERS) + reader.at;
        for (let groups = takeNumber(OTHERS); groups > 0; groups--) {
          takeNumber(OTHERS);
          takeBytes(OTHERS, 1);
        }
        while (reader.at < bodyEnd) takeInstruction();
      }
    takeBytes(OTHERS, until - reader.at);
  }
  return joinBytes([leb(bytes.length), leb(streams.length), ...streams.map(({ length }) => leb(length)), ...streams]);
}

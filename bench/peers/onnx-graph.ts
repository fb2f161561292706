// ONNX models, written field by field: https://onnx.ai/onnx/repo-docs/IR.html and onnx.proto3 give the numbers.

type Bytes = Uint8Array<ArrayBuffer>;

/** A protobuf message under construction: a list of chunks, so that weights are copied only once. */
class Message {
  readonly chunks: Bytes[] = [];

  get length(): number {
    return this.chunks.reduce((sum, chunk) => sum + chunk.length, 0);
  }

  varint(field: number, value: number): this {
    this.chunks.push(Uint8Array.from([...varint(field << 3), ...varint(value)]));
    return this;
  }

  float(field: number, value: number): this {
    const bytes = new Uint8Array(Float32Array.of(value).buffer);
    this.chunks.push(Uint8Array.from([...varint((field << 3) | 5), ...bytes]));
    return this;
  }

  bytes(field: number, ...chunks: Bytes[]): this {
    const length = chunks.reduce((sum, chunk) => sum + chunk.length, 0);
    this.chunks.push(Uint8Array.from([...varint((field << 3) | 2), ...varint(length)]), ...chunks);
    return this;
  }

  text(field: number, value: string): this {
    return this.bytes(field, new TextEncoder().encode(value));
  }

  message(field: number, value: Message): this {
    return this.bytes(field, ...value.chunks);
  }

  join(): Bytes {
    const all = new Uint8Array(this.length);
    let at = 0;
    for (const chunk of this.chunks) {
      all.set(chunk, at);
      at += chunk.length;
    }
    return all;
  }
}

function varint(value: number): number[] {
  const bytes: number[] = [];
  let rest = BigInt.asUintN(64, BigInt(value));
  do {
    const more = rest > 127n;
    bytes.push(Number(rest & 127n) | (more ? 128 : 0));
    rest >>= 7n;
  } while (rest > 0n);
  return bytes;
}

/** The numbers of types of tensors. */
export const FLOAT = 1;
export const UINT8 = 2;
export const INT8 = 3;
export const INT32 = 6;
export const INT64 = 7;

type Data = Float32Array | Int32Array | BigInt64Array | Int8Array | Uint8Array;

function typeOf(data: Data): number {
  if (data instanceof Float32Array) return FLOAT;
  if (data instanceof Uint8Array) return UINT8;
  if (data instanceof Int8Array) return INT8;
  return data instanceof Int32Array ? INT32 : INT64;
}

export type Attribute = number | string | readonly number[] | { readonly float: number };

/** Where the bytes of a constant are, and what they are. */
export interface External {
  readonly type: number;
  readonly shape: readonly number[];
  readonly file: string;
  readonly offset: number;
  readonly length: number;
}

/** A graph under construction. A tensor is represented by its name. */
export class OnnxGraph {
  readonly #nodes: Message[] = [];
  readonly #constants: Message[] = [];
  readonly #inputs: Message[] = [];
  #names = 0;

  #name(): string {
    return `t${this.#names++}`;
  }

  /** A size that is a name may be any, the same in all inputs that have it. */
  input(shape: readonly (number | string)[], type = FLOAT, name: string = this.#name()): string {
    this.#inputs.push(value(name, shape, type));
    return name;
  }

  /** A tensor under a name that programs know. */
  named(from: string, name: string): string {
    this.#nodes.push(new Message().text(1, from).text(2, name).text(4, "Identity"));
    return name;
  }

  constant(data: Data, shape: readonly number[]): string {
    const name = this.#name();
    const tensor = new Message();
    for (const size of shape) tensor.varint(1, size);
    const raw = new Uint8Array(data.buffer as ArrayBuffer, data.byteOffset, data.byteLength);
    this.#constants.push(tensor.varint(2, typeOf(data)).text(8, name).bytes(9, raw));
    return name;
  }

  /** A constant whose bytes lie in another file. */
  external({ type, shape, file, offset, length }: External): string {
    const name = this.#name();
    const tensor = new Message();
    for (const size of shape) tensor.varint(1, size);
    tensor.varint(2, type).text(8, name);
    for (const [key, text] of Object.entries({ location: file, offset, length }))
      tensor.message(13, new Message().text(1, key).text(2, `${text}`));
    this.#constants.push(tensor.varint(14, 1));
    return name;
  }

  /** A tensor of sizes, an input of many operators. */
  sizes(values: readonly number[]): string {
    return this.constant(BigInt64Array.from(values, BigInt), [values.length]);
  }

  /** A node, and the names of its outputs. An input "" is absent. */
  node(
    op: string,
    inputs: readonly string[],
    attributes: Record<string, Attribute> = {},
    outputs = 1,
    domain = "",
  ): string[] {
    const names = Array.from({ length: outputs }, () => this.#name());
    const node = new Message();
    for (const input of inputs) node.text(1, input);
    for (const name of names) node.text(2, name);
    node.text(4, op);
    for (const [name, given] of Object.entries(attributes)) node.message(5, attribute(name, given));
    if (domain) node.text(7, domain);
    this.#nodes.push(node);
    return names;
  }

  /** The model's bytes. Outputs are float32; the runtime infers their shapes. */
  model(outputs: readonly string[]): Bytes {
    const graph = new Message();
    for (const node of this.#nodes) graph.message(1, node);
    graph.text(2, "g");
    for (const constant of this.#constants) graph.message(5, constant);
    for (const input of this.#inputs) graph.message(11, input);
    for (const output of outputs) graph.message(12, value(output));
    const model = new Message().varint(1, 10).message(7, graph);
    for (const [domain, version] of [
      ["", 23],
      ["com.microsoft", 1],
    ] as const)
      model.message(8, new Message().text(1, domain).varint(2, version));
    return model.join();
  }
}

function value(name: string, shape?: readonly (number | string)[], type = FLOAT): Message {
  const tensor = new Message().varint(1, type);
  if (shape) {
    const dims = new Message();
    for (const size of shape)
      dims.message(1, typeof size === "number" ? new Message().varint(1, size) : new Message().text(2, size));
    tensor.message(2, dims);
  }
  return new Message().text(1, name).message(2, new Message().message(1, tensor));
}

function attribute(name: string, given: Attribute): Message {
  const message = new Message().text(1, name);
  if (typeof given === "number") return message.varint(3, given).varint(20, 2);
  if (typeof given === "string") return message.text(4, given).varint(20, 3);
  if ("float" in given) return message.float(2, given.float).varint(20, 1);
  for (const one of given) message.varint(8, one);
  return message.varint(20, 7);
}

// asc transform: reads the kernels that each module of assembly/ exports and the structs they take, and writes src/wasm/abi.ts.
// Kernels take i32, u32, f32 and the pointers of assembly/types.ts, and at most eight arguments; anything else fails
// the build.

import { readFileSync, writeFileSync } from "node:fs";
import { NodeKind } from "assemblyscript";
import { Transform } from "assemblyscript/transform";

const TARGET = new URL("../src/wasm/abi.ts", import.meta.url);

/** What a pointer of each kind points to, in TypeScript. Those of the rare kinds are written out where the host needs them. */
const POINTEES = {
  F32Ptr: "Float32Array",
  F64Ptr: "Float64Array",
  I32Ptr: "Int32Array",
  U8Ptr: "Uint8Array",
  U16Ptr: "Uint16Array",
  PagesPtr: "readonly Page[]",
};
const RARE = new Set(["F64Ptr", "I32Ptr", "U16Ptr"]);
/** The modules by their part: their entry, and the name of the interface of their kernels. */
const PARTS = {
  floats: { entry: "index", type: "FloatKernels", doc: "The kernels of floats, which every instance has" },
  weights: { entry: "weights", type: "WeightKernels", doc: "The kernels of weights that are not float32" },
  caches: {
    entry: "caches",
    type: "CacheKernels",
    doc: "The kernels of cache pages of any format, and what no call of floats needs",
  },
  latents: { entry: "latents", type: "LatentPageKernels", doc: "The kernels of latent attention" },
  decoders: {
    entry: "decoders",
    type: "DecoderKernels",
    doc: "The kernels of whole decoders around attention and linear",
  },
  statistics: {
    entry: "statistics",
    type: "StatisticsKernels",
    doc: "The kernel that measures attention as it attends",
  },
};
const NULLABLE = "OrNull";
/** Every module also exports its build, its base of the heap and its stamp, from here. These are not kernels. */
const MODULE = "assembly/module";
/** Arguments that a record of the work queue of threads holds (src/hosts/threads/pool.ts); what needs more takes a struct. */
const MOST_ARGUMENTS = 8;
/** Where a kernel that works in scratch has it, so that each thread can be given its own. */
const SCRATCH = "scratch";
const SCRATCH_ARGUMENT = 3;
const STORE = { i32: "setInt32", u32: "setUint32", f32: "setFloat32" };

const isScalar = (type) => type in STORE;
const isPointer = (type, structs) => type.replace(NULLABLE, "") in POINTEES || structs.has(type.replace(/Ptr$/, ""));

function typeName(type, where) {
  if (type?.kind !== NodeKind.NamedType) throw new Error(`abi: ${where} has no named type`);
  return type.name.identifier.text;
}

function readKernels(sources, structs, entry) {
  const table = sources.find((source) => source.normalizedPath === `assembly/${entry}.ts`);
  const functions = new Map();
  for (const source of sources)
    for (const statement of source.statements)
      if (statement.kind === NodeKind.FunctionDeclaration)
        functions.set(`${source.internalPath}/${statement.name.text}`, statement);

  const kernels = [];
  for (const statement of table.statements) {
    if (statement.kind !== NodeKind.Export || !statement.path || statement.internalPath === MODULE) continue;
    for (const member of statement.members) {
      const name = member.exportedName.text;
      const found = functions.get(`${statement.internalPath}/${member.localName.text}`);
      if (!found) throw new Error(`abi: ${name} is not a function of ${statement.internalPath}`);
      const parameters = found.signature.parameters.map((parameter) => {
        const type = typeName(parameter.type, `${name}(${parameter.name.text})`);
        if (!isScalar(type) && !isPointer(type, structs))
          throw new Error(`abi: ${name}(${parameter.name.text}) has type ${type}, which kernels do not take`);
        return { name: parameter.name.text, type };
      });
      const result = typeName(found.signature.returnType, name);
      if (result !== "void") throw new Error(`abi: ${name} returns ${result}; kernels return nothing`);
      expectArguments(name, parameters);
      kernels.push({ name, parameters });
    }
  }
  return kernels.sort((a, b) => (a.name < b.name ? -1 : 1));
}

/** What threads rely on: the range at the end, room in a record, scratch where it is expected. */
function expectArguments(name, parameters) {
  const names = parameters.map((parameter) => parameter.name);
  if (names.at(-2) !== "begin" || names.at(-1) !== "end") throw new Error(`abi: ${name} does not end in begin, end`);
  if (names.length > MOST_ARGUMENTS)
    throw new Error(`abi: ${name} has ${names.length} arguments; above ${MOST_ARGUMENTS}, take a struct`);
  const scratch = names.indexOf(SCRATCH);
  if (scratch >= 0 && scratch !== SCRATCH_ARGUMENT)
    throw new Error(`abi: ${name} has scratch as argument ${scratch}, expected ${SCRATCH_ARGUMENT}`);
}

/** Classes of assembly/types.ts: every field is 4 bytes, so field i lies at byte 4·i. */
function readStructs(sources) {
  const structs = new Map();
  const types = sources.find((source) => source.normalizedPath === "assembly/types.ts");
  for (const statement of types.statements) {
    if (statement.kind !== NodeKind.ClassDeclaration) continue;
    const fields = statement.members.map((member) => {
      const type = typeName(member.type, `${statement.name.text}.${member.name.text}`);
      if (!isScalar(type) && !isPointer(type, structs))
        throw new Error(`abi: ${statement.name.text}.${member.name.text} has type ${type}, which kernels do not take`);
      return { name: member.name.text, type };
    });
    structs.set(statement.name.text, fields);
  }
  return structs;
}

function emit(parts, structs) {
  const kernels = parts.flatMap((part) => part.kernels);
  const withScratch = kernels.filter(({ parameters }) => parameters.some(({ name }) => name === SCRATCH));
  const lines = [
    "// Generated by scripts/abi.mjs from the entries of assembly/ and its types.ts. Do not edit: run `npm run build`.",
    "",
    "declare const pointee: unique symbol;",
    "",
    "/** An address in linear memory, by what lies there. */",
    "export type Pointer<T> = number & { readonly [pointee]: T };",
    ...Object.entries(POINTEES).map(
      ([name, type]) => `${RARE.has(name) ? "" : "export "}type ${name} = Pointer<${type}>;`,
    ),
    "/** A cache page: floats, or bytes with the formats of its keys (bits 0-1) and values (bits 2-3), as in layout.ts. */",
    "export type Page = Float32Array | { readonly formats: number; readonly bytes: Uint8Array };",
    "/** The pointer that points nowhere. */",
    "export type NullPtr = Pointer<null>;",
    "export const NULL: NullPtr = 0 as NullPtr;",
    "",
    "const LITTLE_ENDIAN = true;",
    "",
  ];
  const ts = (type) => {
    if (isScalar(type)) return "number";
    return type.endsWith(NULLABLE) ? `${type.replace(NULLABLE, "")} | NullPtr` : type;
  };
  for (const [name, fields] of structs) {
    lines.push(
      `export interface ${name} {`,
      ...fields.map((field) => `  readonly ${field.name}: ${ts(field.type)};`),
      "}",
      `type ${name}Ptr = Pointer<${name}>;`,
      `export const ${name} = {`,
      `  bytes: ${fields.length * 4},`,
      `  store(view: DataView, at: number, shape: ${name}): void {`,
      ...fields.map(
        (field, i) => `    view.${STORE[field.type] ?? STORE.u32}(at + ${i * 4}, shape.${field.name}, LITTLE_ENDIAN);`,
      ),
      "  },",
      "};",
      "",
    );
  }
  lines.push(
    "/** The fields of each struct, in the order in which they lie: each has four bytes. */",
    "export const FIELDS = {",
    ...[...structs].map(([name, fields]) => `  ${name}: [${fields.map((field) => `"${field.name}"`).join(", ")}],`),
    "} as const;",
    "",
  );
  for (const { type, doc, kernels } of parts)
    lines.push(
      `/** ${doc}, as the host calls them. */`,
      `interface ${type} {`,
      ...kernels.map(({ name, parameters }) => {
        const list = parameters.map((parameter) => `${parameter.name}: ${ts(parameter.type)}`).join(", ");
        return `  ${name}(${list}): void;`;
      }),
      "}",
      "",
    );
  lines.push(
    "/** All kernels. Those of a module that was not loaded are undefined; checks keep calls from them. */",
    `export interface KernelTable extends ${parts.map(({ type }) => type).join(", ")} {}`,
    "",
    "/** The kernels of each part, a module each. */",
    "export interface PartKernels {",
    ...parts.map(({ part, type }) => `  readonly ${part}: ${type};`),
    "}",
    "",
    "/** Kernels that work in scratch, which is argument SCRATCH_ARGUMENT. */",
    `export type ScratchKernel = ${withScratch.map(({ name }) => `"${name}"`).join(" | ")};`,
    `export const SCRATCH_ARGUMENT = ${SCRATCH_ARGUMENT};`,
    "/** The most arguments of a kernel. */",
    `export const MOST_ARGUMENTS = ${MOST_ARGUMENTS};`,
    "",
    "/** The names of the kernels, part by part: their numbers in the work queue of threads. */",
    "export const KERNEL_NAMES: readonly (keyof KernelTable)[] = [",
    ...parts.map(({ kernels }) => `  ${kernels.map(({ name }) => `"${name}"`).join(", ")},`),
    "];",
    "",
    `type Struct = ${[...structs.keys()].join(" | ")};`,
    "type Pointed<A> = A extends Pointer<infer T> ? (T extends Struct ? Plain<T> : T) : A;",
    "/** A struct with arrays where it had addresses. */",
    "export type Plain<S> = { readonly [K in keyof S]: Pointed<S[K]> };",
    "/** A kernel with arrays where it had addresses. */",
    "type Twin<F> = F extends (...args: infer A) => void",
    "  ? (...args: { [I in keyof A]: Pointed<A[I]> }) => void",
    "  : never;",
    "/** A twin for every kernel. */",
    "export type Reference = { readonly [K in keyof KernelTable]: Twin<KernelTable[K]> };",
    "",
  );
  return lines.join("\n");
}

export default class AbiTransform extends Transform {
  afterParse(parser) {
    const structs = readStructs(parser.sources);
    const parts = Object.entries(PARTS).map(([part, { entry, type, doc }]) => ({
      part,
      type,
      doc,
      kernels: readKernels(parser.sources, structs, entry),
    }));
    const text = emit(parts, structs);
    let before = "";
    try {
      before = readFileSync(TARGET, "utf8");
    } catch (error) {
      if (error.code !== "ENOENT") throw error;
    }
    if (text !== before) writeFileSync(TARGET, text);
  }
}

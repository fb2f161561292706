// What `headwise configure` prints.

import type { CacheFormat } from "../cache/page-layout.ts";
import type { Configuration } from "../configure/configure.ts";
import type { ModelCost } from "../configure/describe-model.ts";
import type { LayerMemory } from "../configure/layer-memory.ts";
import type { LayerMeasurement } from "../configure/measure-layer.ts";
import type { Roofline } from "../configure/roofline.ts";
import type { ModelPlan } from "../decoder/plan-model.ts";
import type { WeightFormat } from "../linear/formats.ts";
import { columnsText, sizeText } from "./text.ts";

/** 1234567 as 1,234,567. */
const countText = (count: number): string => String(count).replace(/\B(?=(\d{3})+$)/g, ",");
const bytesText = (bytes: number): string => `${countText(bytes)} bytes${bytes < 1000 ? "" : ` (${sizeText(bytes)})`}`;

/** A configuration: choices with reasons, costs, rules. */
export function configurationText(found: Configuration & { readonly roofline?: Roofline | undefined }): string {
  const { choices, parameters, cacheBytes, memory, speed, roofline } = found;
  const rows = choices.map(({ what, value, reason }) => [what, String(value), reason]);
  const costs = [
    ["parameters", countText(parameters)],
    ["caches", `${bytesText(cacheBytes)} of a session`],
    ["linear memory", memoryText(memory, found.weights, found.cache)],
    ...(speed
      ? [
          ["prefill", `${speed.prefillTokensPerSecond.toPrecision(3)} tokens/s predicted on one thread`],
          ["decode", `${speed.decodeTokensPerSecond.toPrecision(3)} tokens/s predicted after the longest prompt`],
        ]
      : []),
    ...(roofline ? [["roofline", rooflineText(roofline)]] : []),
  ];
  const rules = choices.map(({ what, rule }) => [what, rule]);
  return [
    columnsText([["choice", "value", "reason"], ...rows], 3),
    columnsText(costs, 2),
    columnsText([["choice", "rule of thumb"], ...rules], 2),
  ]
    .map(trimLines)
    .join("\n\n");
}

const trimLines = (text: string): string => text.replace(/ +$/gm, "");

/** Bytes by part, and the formats of weights and caches. */
function memoryText({ weights, sessions, scratch, total }: ModelPlan, matrices: string, cache: string): string {
  const parts = [`weights ${countText(weights)} (${matrices})`, `a session ${countText(sessions)} (${cache})`];
  return `${bytesText(total)}: ${parts.join(", ")}, calls ${countText(scratch)}`;
}

/** The peaks of a machine, and what kernels reach of them, by which speed is predicted. */
function rooflineText({ flops, bytes, weights = {}, attention, other }: Roofline): string {
  const giga = (rate: number) => (rate / 1e9).toPrecision(3);
  const micro = (seconds: number) => (1e6 * seconds).toPrecision(3);
  const reached = Object.entries(weights).map(([format, { flops, bytes }]) => {
    const reading = bytes.map(([size, perSecond]) => `${giga(perSecond)} GB/s of ${sizeText(size)}`).join(", ");
    return `; with ${format} ${giga(flops)} GFLOP/s, reading ${reading}`;
  });
  const pairs = attention
    ? `; attention ${giga(attention.prompt)} GFLOP/s in a prompt, ${giga(attention.token)} of a token`
    : "";
  const others = other
    ? `; besides, a layer ${micro(other.layer)} us of a token, ${micro(other.row)} of each in a prompt`
    : "";
  return `${giga(flops)} GFLOP/s, ${giga(bytes)} GB/s at most${reached.join("")}${pairs}${others}`;
}

const CLOCKS: Readonly<Record<LayerMeasurement["clock"], string>> = {
  thread: "Milliseconds are processor time of the thread, which other programs on the machine do not add to.",
  wall: "Milliseconds are those of the clock: other programs on the machine make them longer.",
};

/** A layer as predicted and as measured. */
export function measurementText({ tokens, clock, predicted, measured }: LayerMeasurement): string {
  const row = (name: string, of: (cost: LayerMeasurement["measured"]) => number, text: (value: number) => string) => {
    const [a, b] = [of(predicted), of(measured)];
    return [name, text(a), text(b), a === b ? "equal" : `${(100 * (a / b - 1)).toFixed(0)} %`];
  };
  const ms = (value: number) => value.toPrecision(3);
  const table = columnsText(
    [
      ["one layer", "predicted", "measured", "difference"],
      row("weights, bytes", ({ weightBytes }) => weightBytes, countText),
      row("session, bytes", ({ sessionBytes }) => sessionBytes, countText),
      row(`prompt of ${tokens} tokens, ms`, ({ prefillMs }) => prefillMs, ms),
      row(`a token after ${tokens}, ms`, ({ decodeMs }) => decodeMs, ms),
    ],
    1,
  );
  return `${table}\n${CLOCKS[clock]}`;
}

/** Formats that were asked for. */
interface AskedFormats {
  readonly weights: WeightFormat | undefined;
  readonly cache: CacheFormat | undefined;
}

/** What a model costs. */
export function costText(cost: ModelCost, { weights: asked, cache: askedCache }: AskedFormats): string {
  const {
    type,
    parameters,
    activeParameters,
    weightBytes,
    storedBytes,
    storedAs,
    seqLen,
    tokenBytes,
    memory,
    refusal,
  } = cost;
  const active = activeParameters < parameters ? ` (${countText(activeParameters)} for a token)` : "";
  const weights = Object.entries(weightBytes).map(([format, bytes]) => `${format} ${sizeText(bytes)}`);
  const isWindowed = cost.layers.some(({ window }) => window !== undefined);
  const kept = asked ?? (storedAs ? `as stored: ${storedAs.join(", ")}` : "f32");
  const rows = [
    ["model", type],
    ["parameters", `${countText(parameters)}${active}`],
    ["weights", weights.join(", ")],
    ...(storedBytes === undefined
      ? []
      : [["stored", `${bytesText(storedBytes)}, matrices in ${storedAs?.join(", ")}`]]),
    ["a token", `${bytesText(tokenBytes)} of cache at 16 bits${isWindowed ? ", while no window is full" : ""}`],
    [`${seqLen} tokens`, `${bytesText(cost.cacheBytes)} of caches at 16 bits`],
    ["states", cost.stateBytes === 0 ? "none" : `${bytesText(cost.stateBytes)} at 32 bits`],
    ["linear memory", memory ? memoryText(memory, kept, askedCache ?? "f32") : `not run here: ${refusal}`],
  ];
  const head = ["layers", "keep", "numbers a token", "window", "numbers of a state"];
  const tables = [columnsText(rows, 2), columnsText([head, ...cost.layers.map(layerRow)], 2)].map(trimLines);
  const hint = memory && asked === undefined && askedCache === undefined;
  return [...tables, ...(hint ? ["For linear memory in other formats: --weights q8 --cache q8."] : [])].join("\n\n");
}

function layerRow({ layers, kind, perToken, window, state }: LayerMemory): string[] {
  const cell = (value: number | undefined) => (value ? countText(value) : "-");
  return [String(layers), kind, cell(perToken), cell(window), cell(state)];
}

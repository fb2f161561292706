// What `headwise configure` prints.

import type { Configuration } from "../configure/configure.ts";
import type { ModelCost } from "../configure/describe-model.ts";
import type { LayerMemory } from "../configure/layer-memory.ts";
import type { LayerMeasurement } from "../configure/measure-layer.ts";
import type { Roofline } from "../configure/roofline.ts";
import type { ModelPlan } from "../decoder/plan-model.ts";
import { columnsText, sizeText } from "./text.ts";

/** 1234567 as 1,234,567. */
const countText = (count: number): string => String(count).replace(/\B(?=(\d{3})+$)/g, ",");
const bytesText = (bytes: number): string => `${countText(bytes)} bytes${bytes < 1000 ? "" : ` (${sizeText(bytes)})`}`;

/** A configuration: choices with reasons, costs, warnings, rules. */
export function configurationText(found: Configuration & { readonly roofline?: Roofline | undefined }): string {
  const { choices, parameters, cacheBytes, memory, speed, warnings, roofline } = found;
  const rows = choices.map(({ what, value, reason }) => [what, String(value), reason]);
  const costs = [
    ["parameters", countText(parameters)],
    ["caches", `${bytesText(cacheBytes)} of a session`],
    ["linear memory", memoryText(memory)],
    ...(speed
      ? [
          ["prefill", `${speed.prefillTokensPerSecond.toPrecision(3)} tokens/s predicted on one thread`],
          ["decode", `${speed.decodeTokensPerSecond.toPrecision(3)} tokens/s predicted behind the longest prompt`],
        ]
      : []),
    ...(roofline ? [["roofline", rooflineText(roofline)]] : []),
  ];
  const rules = choices.map(({ what, rule }) => [what, rule]);
  return [
    columnsText([["choice", "value", "reason"], ...rows], 3),
    columnsText(costs, 2),
    ...(warnings.length > 0 ? [warnings.map((warning) => `warning: ${warning}`).join("\n")] : []),
    columnsText([["choice", "rule of thumb"], ...rules], 2),
  ]
    .map(trimLines)
    .join("\n\n");
}

const trimLines = (text: string): string => text.replace(/ +$/gm, "");

const memoryText = ({ weights, sessions, scratch, total }: ModelPlan): string =>
  `${bytesText(total)}: weights ${countText(weights)}, a session ${countText(sessions)}, calls ${countText(scratch)}`;

const rooflineText = ({ flops, bytes }: Roofline): string =>
  `${(flops / 1e9).toPrecision(3)} GFLOP/s, ${(bytes / 1e9).toPrecision(3)} GB/s`;

/** A layer as predicted and as measured. */
export function measurementText({ tokens, predicted, measured }: LayerMeasurement): string {
  const row = (name: string, of: (cost: LayerMeasurement["measured"]) => number, text: (value: number) => string) => {
    const [a, b] = [of(predicted), of(measured)];
    return [name, text(a), text(b), a === b ? "equal" : `${(100 * (a / b - 1)).toFixed(0)} %`];
  };
  const ms = (value: number) => value.toPrecision(3);
  return columnsText(
    [
      ["one layer", "predicted", "measured", "difference"],
      row("weights, bytes", ({ weightBytes }) => weightBytes, countText),
      row("session, bytes", ({ sessionBytes }) => sessionBytes, countText),
      row(`prompt of ${tokens} tokens, ms`, ({ prefillMs }) => prefillMs, ms),
      row(`a token behind ${tokens}, ms`, ({ decodeMs }) => decodeMs, ms),
    ],
    1,
  );
}

/** What a model costs. */
export function costText(cost: ModelCost): string {
  const { type, parameters, activeParameters, weightBytes, storedBytes, seqLen, tokenBytes, memory, refusal } = cost;
  const active = activeParameters < parameters ? ` (${countText(activeParameters)} for a token)` : "";
  const weights = Object.entries(weightBytes).map(([format, bytes]) => `${format} ${sizeText(bytes)}`);
  const rows = [
    ["model", type],
    ["parameters", `${countText(parameters)}${active}`],
    ["weights", weights.join(", ")],
    ...(storedBytes === undefined ? [] : [["in the file", bytesText(storedBytes)]]),
    ["a token", `${bytesText(tokenBytes)} of cache at 16 bits, while no window is full`],
    [`${seqLen} tokens`, `${bytesText(cost.cacheBytes)} of caches at 16 bits`],
    ["states", cost.stateBytes === 0 ? "none" : `${bytesText(cost.stateBytes)} at 32 bits`],
    ["linear memory", memory ? memoryText(memory) : `not run here: ${refusal}`],
  ];
  const head = ["layers", "keep", "numbers a token", "window", "numbers of a state"];
  return `${trimLines(columnsText(rows, 2))}\n\n${trimLines(columnsText([head, ...cost.layers.map(layerRow)], 2))}`;
}

function layerRow({ layers, kind, perToken, window, state }: LayerMemory): string[] {
  const cell = (value: number | undefined) => (value ? countText(value) : "-");
  return [String(layers), kind, cell(perToken), cell(window), cell(state)];
}

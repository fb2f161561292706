// The decoders that are compared.

import { MODEL_CONFIGS } from "../../lib/random-model.ts";
import { HYBRIDS } from "./hybrids.ts";
import { type DecoderShape, shapeOf } from "./shape.ts";

export const SHAPES: readonly DecoderShape[] = [
  ...Object.entries(MODEL_CONFIGS).map(([name, config]) => shapeOf(name, config)),
  ...HYBRIDS,
];

// What every module exports about itself.

export { STAMP } from "./stamp";

/** 1 in the relaxed build. */
export { MADD_FUSES as RELAXED } from "./math/simd";

/** The first address that no static table of this module uses. Those of other modules lie below the table of floats. */
export const HEAP_BASE: usize = __heap_base;

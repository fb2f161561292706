// Constants of the memory layouts, read by the kernels and by the host. Un-annotated on purpose: such a constant is an
// i32 in AssemblyScript and a number in TypeScript.

/** Columns of a packed weight panel, keys of a key panel and columns of a value panel: two v128 of f32. */
export const PANEL = 8;

/** Keys of a cache page. Pages lie at absolute positions, so that no call boundary can be seen by the arithmetic. */
export const PAGE = 128;

/** Alignment of every allocation, in bytes. */
export const ALIGN = 64;

/** Query rows that attention_f32 carries through the pages at a time. Any number gives the same bits. */
export const TILE_ROWS = 96;

/** Floats of attention_f32's scratch per query row beside its query and its output: max, 4 sums, alpha, low, high. */
export const ROW_STATE = 8;

/** Components of a query that attention_f32 keeps together. */
export const QUERY_CHUNK = 64;

/**
 * Floats of attention_f32's scratch beside its rows: room to round headDim up to whole chunks, the scores of six rows and a
 * page, and a byte for each key of a page. The whole scratch is
 * TILE_ROWS · (ROW_STATE + headDim + PANEL · ceil(valueDim / PANEL)) + SCRATCH_STRIP floats, whatever the lengths.
 */
export const SCRATCH_STRIP = 6944;

// Constants of the memory layouts, read by the kernels and by the host. Un-annotated on purpose: such a constant is an
// i32 in AssemblyScript and a number in TypeScript.

/** Columns of a packed weight panel, keys of a key panel and columns of a value panel: two v128 of f32. */
export const PANEL = 8;

/** Bytes of a row of a panel: 8 floats; 8 floats of 16 bits; 8 pairs of int8. */
export const PANEL_BYTES = 32;
export const PANEL_BYTES_16 = 16;
export const PAIR_BYTES = 16;

/** Inputs of a weight block: those that share a scale in q8 and q4. Rows of integers come in whole blocks. */
export const BLOCK = 32;

/** Inputs of a super-block of GGUF's Q4_K: eight blocks, whose scales and minimums are integers times two floats. */
export const SUPER_BLOCK = 256;

/** Bytes of a super-block of a panel: block_layout.ts says what lies where. */
export const Q4_K_BYTES = 1216;

/** Inputs of the longest block that has a scale of its own within a row. A longer one is a row. */
export const LONGEST_BLOCK = 128;

/** Keys of a cache page. Pages lie at absolute positions, so that no call boundary can be seen by the arithmetic. */
export const PAGE = 128;

/** Formats of the keys of a cache page, and of its values: bits 0-1 and 2-3 of the page's address in its table. */
export const FORMAT_F32 = 0;
export const FORMAT_F16 = 1;
export const FORMAT_Q8 = 2;
export const FORMAT_Q4 = 3;

/** In the formats of an AttentionShape: pages are those of latent attention. */
export const LATENT_PAGES = 256;

/** Alignment of every allocation, in bytes. */
export const ALIGN = 64;

/** Query rows that attention_f32 takes through the pages at a time. Any number gives the same bits. */
export const TILE_ROWS = 96;

/** Floats of attention_f32's scratch per query row beside its query and its output: max, 4 sums, alpha, low, high. */
export const ROW_STATE = 8;

/** Components of a query that attention_f32 keeps together: as many as a page has keys, since tiles take either. */
export const QUERY_CHUNK = 128;

/**
 * Floats of attention_f32's scratch beside its rows: room to round headDim up to whole chunks, the scores of six rows and a
 * page, and a byte for each key of a page. The whole scratch is
 * TILE_ROWS · (ROW_STATE + headDim + PANEL · ceil(valueDim / PANEL)) + SCRATCH_STRIP floats, whatever the lengths.
 */
export const SCRATCH_STRIP = 13088;

/**
 * What else attention_f32's scratch holds where pages are not float32, behind the rest: for integer keys, a head of so many
 * bytes and 2 · headDim bytes, rounded up to whole QUADs, for each of TILE_ROWS rows; then keys and values of one head of
 * a page, as float32 where the page has f16 and as bytes where it has q4.
 */
export const QUERY_HEAD = 16;

/** Components of a key, or keys of a value, that integers are kept in wholes of: zeros follow where there are fewer. */
export const QUAD = 4;

/**
 * Floats that attention_statistics writes for a row: log-sum-exp, weight on all keys, on the first and on the last ones, entropy,
 * mean distance, effective number of keys; then one that is 0, topK weights, and topK keys as i32.
 */
export const STATISTICS = 8;

/**
 * Bytes of scratch of attention_statistics behind that of attention_pages: STATISTICS_LISTS; for each of TILE_ROWS rows
 * STATISTICS_ROW, and 8 for each of topK keys, rounded up to whole QUADs; where `received` is wanted, also 8, then KEPT_ROW for each of KEPT_ROWS rows and each
 * of keptPages pages, and KEPT_END. KEPT_ROWS are then the rows of a tile: what they keep is read again from a CPU cache.
 */
export const STATISTICS_LISTS = 512;
export const STATISTICS_ROW = 80;
export const KEPT_ROW = 516;
export const KEPT_ROWS = 24;
export const KEPT_END = 3200;

/**
 * Bytes of scratch of linear_q4, linear_q4_k, linear_codebook and linear_lookup: at most a weight block of 16 panels by 1024 inputs in int8 with its sums, rows in
 * the order of nibbles, or tables.
 */
export const LINEAR_SCRATCH = 163840;

/** Bytes of scratch of subtract_mins: sums of 512 blocks of four rows. */
export const MINS_SCRATCH = 8192;

/**
 * Floats of linear_f16's scratch: 16 panels by 512 inputs of weights in float32, or one of these panels and the rows of x
 * that are multiplied by weights in 16 bits.
 */
export const F16_SCRATCH = 65536;

/** In a mode of rows of integers, beside the path: that they are multiples of 1/127 of their largest number. */
export const ROUNDED = 8;

/** That those of few bits have a sign and 8 bits, because weights have four: else they have 7, of which none is below 0. */
export const SIGNED = 16;

/**
 * Activations: x · sigmoid(alpha · x), which is SiLU with alpha 1 and quick GELU with 1.702; GELU exactly; GELU by tanh; ReLU; its
 * square; the sigmoid alone.
 */
export const ACT_SWISH = 0;
export const ACT_GELU = 1;
export const ACT_GELU_TANH = 2;
export const ACT_RELU = 3;
export const ACT_RELU_SQUARED = 4;
export const ACT_SIGMOID = 5;

/** Formats of the panels of a table of embeddings; of indices into a codebook it is their type in GGUF. */
export const WEIGHT_F32 = 0;
export const WEIGHT_F16 = 1;
export const WEIGHT_BF16 = 2;
export const WEIGHT_Q8 = 3;
export const WEIGHT_Q4 = 4;
export const WEIGHT_LOOKUP = 5;
export const WEIGHT_Q4_K = 6;

/** Columns of a strip of the state of linear attention: four v128. */
export const STATE_STRIP = 16;

/**
 * What score_rows computes: of floats the dot product, or minus the Euclidean or Manhattan distance; of int8 and of bits the dot
 * product.
 */
export const SCORE_DOT = 0;
export const SCORE_EUCLIDEAN = 1;
export const SCORE_MANHATTAN = 2;
export const SCORE_INT8 = 3;
export const SCORE_BINARY = 4;

/** Types of blocks by their numbers in GGUF, of those that pack_blocks and pack_lookup read. */
export const GGML_Q4_1 = 3;
export const GGML_Q5_0 = 6;
export const GGML_Q5_1 = 7;
export const GGML_Q2_K = 10;
export const GGML_Q3_K = 11;
export const GGML_Q4_K = 12;
export const GGML_Q5_K = 13;
export const GGML_Q6_K = 14;
export const GGML_IQ2_XXS = 16;
export const GGML_IQ2_XS = 17;
export const GGML_IQ3_XXS = 18;
export const GGML_IQ1_S = 19;
export const GGML_IQ4_NL = 20;
export const GGML_IQ3_S = 21;
export const GGML_IQ2_S = 22;
export const GGML_IQ4_XS = 23;
export const GGML_IQ1_M = 29;
export const GGML_TQ1_0 = 34;
export const GGML_TQ2_0 = 35;
export const GGML_I2_S = 36;
export const GGML_MXFP4 = 39;
export const GGML_NVFP4 = 40;

/** Instead of a type: blocks of codes as Q1_0 and Q2_0 have them. */
export const PLAIN_CODES = 0;

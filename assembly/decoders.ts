// The kernels of whole decoders: a module of its own, on the memory of that of index.ts.

export { embed_rows } from "./decoder/embed_rows";
export { gather_rows_f32, scatter_rows_f32 } from "./decoder/expert_rows";
export { route_f32 } from "./decoder/route";
export { score_rows } from "./decoder/score_rows";
export { softmax_sums_f32 } from "./decoder/softmax_sums";
export { top_k_f32 } from "./decoder/top_k";
export { widen_f16 } from "./decoder/widen";
export { HEAP_BASE, RELAXED, STAMP } from "./module";
export { activate_f32 } from "./pointwise/activations";
export { add_scaled_f32, cap_logits_f32, limit_f32 } from "./pointwise/add_cap";
export { layer_norm_f32 } from "./pointwise/layer_norm";
export { round_rows_f32 } from "./pointwise/round_rows";
export { causal_conv_f32 } from "./recurrent/causal_conv";
export { channel_scan_f32 } from "./recurrent/channel_scan";
export { decay_f32 } from "./recurrent/decay";
export { linear_attention_f32 } from "./recurrent/linear_attention";
export { xielu_f32 } from "./pointwise/xielu";

"""The configurations of the models: what differs from the defaults of their families, as small as it can be."""

SIZE = dict(
    vocab_size=40, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, head_dim=8, max_position_embeddings=64, bos_token_id=1, eos_token_id=2, pad_token_id=0,
)
MAMBA = dict(mamba_n_heads=4, mamba_d_head=8, mamba_n_groups=2, mamba_d_state=6, mamba_expand=2, mamba_chunk_size=8)
DELTA = dict(linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=6, linear_value_head_dim=4)
LATENT = dict(
    num_key_value_heads=4, head_dim=4, q_lora_rank=10, kv_lora_rank=12, qk_nope_head_dim=6, qk_rope_head_dim=4,
    v_head_dim=5,
)
EXPERTS = dict(num_experts=6, num_experts_per_tok=2, moe_intermediate_size=10)
WINDOWED = ["sliding_attention", "full_attention"]
SCALED = dict(
    rope_type="yarn", rope_theta=1e4, factor=2.0, original_max_position_embeddings=8, llama_4_scaling_beta=0.1,
    beta_fast=32.0, beta_slow=1.0, mscale=1.0, mscale_all_dim=1.0,
)
ENCODER = dict(
    vocab_size=40, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
    max_position_embeddings=320, bos_token_id=1, eos_token_id=2, pad_token_id=0,
)
MASKED = dict(ENCODER, auto="AutoModelForMaskedLM")
VISION = dict(
    hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2, image_size=8, patch_size=4,
)


def of(model_type, without=(), **own):
    config = {**SIZE, "model_type": model_type, **own}
    for key in without:
        del config[key]
    return config


MODELS = {
    "afmoe": of(
        "afmoe", **{**EXPERTS, "num_hidden_layers": 4}, num_shared_experts=1, num_dense_layers=1, sliding_window=5,
        global_attn_every_n_layers=2, mup_enabled=True, route_scale=1.5,
    ),
    "apertus": of("apertus", without=["head_dim"]),
    "arcee": of("arcee"),
    "bitnet": of("bitnet", without=["head_dim"]),
    "codegen": dict(
        model_type="codegen", vocab_size=40, n_embd=16, n_layer=2, n_head=4, n_positions=64, n_ctx=64, rotary_dim=2,
        bos_token_id=1, eos_token_id=2,
    ),
    "deberta-v2": dict(
        MASKED, model_type="deberta-v2", relative_attention=True, position_buckets=8, position_biased_input=False,
        share_att_key=True, pos_att_type=["p2c", "c2p"], norm_rel_ebd="layer_norm",
    ),
    "dots1": of(
        "dots1", **{**EXPERTS, "num_experts": None, "num_hidden_layers": 3}, n_routed_experts=6, n_shared_experts=1,
        n_group=2, topk_group=1, first_k_dense_replace=1, routed_scaling_factor=1.5, norm_topk_prob=True,
    ),
    "electra": dict(MASKED, model_type="electra", embedding_size=12, type_vocab_size=2),
    "embedding-gemma": of(
        "gemma3_text", auto="AutoModel", layer_types=WINDOWED, sliding_window=10, query_pre_attn_scalar=8,
        use_bidirectional_attention=True, **{"max_position_embeddings": 320},
    ),
    "embedding-gemma2": of(
        "embedding_gemma2_text", auto="AutoModel", layer_types=WINDOWED, sliding_window=5, embedding_dim=20,
        hidden_size_per_layer_input=6, per_layer_config={1: {"head_dim": 12, "num_key_value_heads": 1}},
        **{"max_position_embeddings": 320},
    ),
    "eurobert": of("eurobert", auto="AutoModel", mask_token_id=3, **{"max_position_embeddings": 320}),
    "exaone4": of("exaone4", layer_types=WINDOWED, sliding_window=5),
    "falcon-h1": of(
        "falcon_h1", **MAMBA, mamba_d_ssm=32, mamba_d_conv=4, mamba_rms_norm=True,
        ssm_multipliers=[1.5, 0.5, 1.25, 0.75, 2.0], ssm_in_multiplier=1.5, attention_in_multiplier=1.25,
        key_multiplier=0.5,
    ),
    "gemma3": of("gemma3_text", layer_types=WINDOWED, sliding_window=5, query_pre_attn_scalar=8),
    "gemma3-vision": dict(
        model_type="gemma3", **{"class": "Gemma3ForConditionalGeneration"},
        text_config=of("gemma3_text", layer_types=WINDOWED, sliding_window=5, query_pre_attn_scalar=8),
        vision_config=dict(VISION, model_type="siglip_vision_model"), mm_tokens_per_image=4, image_token_index=39,
        boi_token_index=38, eoi_token_index=37,
    ),
    "gemma3n": of(
        "gemma3n_text", **{"num_hidden_layers": 4}, layer_types=[*WINDOWED, *WINDOWED], sliding_window=5,
        num_kv_shared_layers=2, hidden_size_per_layer_input=6, vocab_size_per_layer_input=30, altup_num_inputs=3,
        laurel_rank=4, activation_sparsity_pattern=[0.5, 0.0, 0.0, 0.0],
    ),
    "gemma4": of(
        "gemma4_text", **{"num_hidden_layers": 4}, layer_types=[*WINDOWED, *WINDOWED], sliding_window=5,
        num_kv_shared_layers=2, hidden_size_per_layer_input=6, vocab_size_per_layer_input=40, use_double_wide_mlp=True,
        global_head_dim=12,
    ),
    "gemma4-moe": of(
        "gemma4_text", num_experts=6, moe_intermediate_size=10, layer_types=WINDOWED, sliding_window=5,
        hidden_size_per_layer_input=0, enable_moe_block=True, top_k_experts=2, global_head_dim=12,
    ),
    "glm4-moe-lite": of(
        "glm4_moe_lite", **{**LATENT, **EXPERTS, "num_experts": None}, n_routed_experts=6, n_shared_experts=1,
    ),
    "gpt-bigcode": dict(
        model_type="gpt_bigcode", vocab_size=40, n_embd=16, n_layer=2, n_head=4, n_positions=64, bos_token_id=1,
        eos_token_id=2,
    ),
    "gpt-neo": dict(
        model_type="gpt_neo", vocab_size=40, hidden_size=16, num_layers=2, num_heads=4, intermediate_size=24,
        max_position_embeddings=64, attention_types=[[["global", "local"], 1]], window_size=5, bos_token_id=1,
        eos_token_id=2,
    ),
    "granite": of(
        "granite", without=["head_dim"], embedding_multiplier=2.0, logits_scaling=1.5, residual_multiplier=0.75,
        attention_multiplier=0.5,
    ),
    "granite-moe": of(
        "granitemoe", without=["head_dim"], num_local_experts=6, num_experts_per_tok=2, embedding_multiplier=2.0,
        logits_scaling=1.5, residual_multiplier=0.75, attention_multiplier=0.5,
    ),
    "granite4": of(
        "granitemoehybrid", without=["head_dim"], **MAMBA, layer_types=["mamba", "attention"],
        shared_intermediate_size=20, num_local_experts=4, num_experts_per_tok=2, residual_multiplier=0.75,
        attention_multiplier=0.5,
    ),
    "gte": dict(MASKED, model_type="gte", type_vocab_size=2),
    "granite-moe-shared": of(
        "granitemoeshared", without=["head_dim"], num_local_experts=6, num_experts_per_tok=2, shared_intermediate_size=20,
        embedding_multiplier=2.0, logits_scaling=1.5, residual_multiplier=0.75, attention_multiplier=0.5,
    ),
    "helium": of("helium", **{"head_dim": 4}),
    "hunyuan": of("hunyuan_v1_dense"),
    "hunyuan-moe": of("hunyuan_v1_moe", num_experts=4, moe_topk=2),
    "internlm3": of("internlm3", bias=True, qkv_bias=True),
    "jamba": of(
        "jamba", without=["head_dim"], **{"num_hidden_layers": 3}, num_experts=4, num_experts_per_tok=2,
        attn_layer_period=2, attn_layer_offset=1, expert_layer_period=2, expert_layer_offset=0, mamba_d_state=5,
        mamba_d_conv=3, mamba_expand=2, mamba_dt_rank=4, use_mamba_kernels=False,
    ),
    "jina-embeddings-v3": dict(MASKED, model_type="jina_embeddings_v3"),
    "kimi-linear": of(
        "kimi_linear", **{**LATENT, "q_lora_rank": None, "head_dim": 8}, linear_num_heads=2, linear_head_dim=6,
        layer_types=["linear_attention", "full_attention"], num_experts=6, num_experts_per_token=2,
        moe_intermediate_size=10,
    ),
    "lfm2": of(
        "lfm2", without=["head_dim"], layer_types=["conv", "full_attention"], conv_L_cache=3,
        block_auto_adjust_ff_dim=False,
    ),
    "lfm2-moe": of(
        "lfm2_moe", without=["head_dim"], **{**EXPERTS, "num_hidden_layers": 3},
        layer_types=["conv", "full_attention", "conv"], conv_L_cache=3, num_dense_layers=1, use_expert_bias=True,
        routed_scaling_factor=1.5,
    ),
    "lfm3": of("lfm3", layer_types=["conv", "full_attention"], conv_L_cache=5),
    "llama4": of(
        "llama4_text", num_local_experts=4, num_experts_per_tok=1, intermediate_size_mlp=20, attention_chunk_size=4,
        floor_scale=3, attn_scale=0.3, interleave_moe_layer_step=2, no_rope_layers=[1, 0],
        rope_parameters=dict(rope_type="default", rope_theta=1e4),
    ),
    "mamba2": dict(
        model_type="mamba2", vocab_size=40, hidden_size=16, num_hidden_layers=2, num_heads=4, head_dim=8,
        state_size=6, n_groups=2, conv_kernel=4, expand=2, chunk_size=8, bos_token_id=1, eos_token_id=2,
        pad_token_id=0,
    ),
    "minicpm3": of("minicpm3", **LATENT, scale_emb=2, scale_depth=1.4, dim_model_base=8),
    "minimax": of(
        "minimax", num_local_experts=4, num_experts_per_tok=2, layer_types=["full_attention", "linear_attention"],
        block_size=4, full_attn_alpha_factor=2.0, full_attn_beta_factor=0.8, linear_attn_alpha_factor=1.5,
        linear_attn_beta_factor=0.9, mlp_alpha_factor=1.25, mlp_beta_factor=0.75,
    ),
    "ministral": of("ministral", layer_types=WINDOWED, sliding_window=5),
    "ministral3": of(
        "ministral3",
        rope_parameters=SCALED,
    ),
    "mistral3-vision": dict(
        model_type="mistral3", **{"class": "Mistral3ForConditionalGeneration"}, text_config=of("mistral"),
        vision_config=dict(VISION, model_type="pixtral", head_dim=4), image_token_index=39, spatial_merge_size=1,
    ),
    "mistral4": of(
        "mistral4", **{"class": "Mistral4ForCausalLM"},
        rope_parameters=dict(SCALED, partial_rotary_factor=0.4),
        **{**LATENT, **EXPERTS, "head_dim": 10, "num_experts": None}, n_routed_experts=6, n_shared_experts=1,
        first_k_dense_replace=1,
    ),
    "nanochat": of("nanochat", without=["head_dim"]),
    "nemotron": of("nemotron", without=["head_dim"]),
    "nemotron-h": of(
        "nemotron_h", **{"num_hidden_layers": 3}, layers_block_type=["mamba", "moe", "attention"],
        time_step_min=1e-9, mamba_num_heads=4, mamba_head_dim=8, n_groups=2, ssm_state_size=6, conv_kernel=4,
        expand=2, chunk_size=8, n_routed_experts=6, n_shared_experts=2, num_experts_per_tok=2,
        moe_intermediate_size=10, moe_latent_size=6, moe_shared_expert_intermediate_size=12,
    ),
    "olmo": of("olmo", without=["head_dim"], clip_qkv=1.5),
    "olmo-hybrid": of(
        "olmo_hybrid", without=["head_dim"], **{**DELTA, "linear_num_value_heads": 2, "linear_value_head_dim": 6},
        layer_types=["linear_attention", "full_attention"],
    ),
    "persimmon": of("persimmon", without=["head_dim", "num_key_value_heads"], partial_rotary_factor=0.5),
    "phi-moe": of("phimoe", without=["head_dim"], num_local_experts=4, num_experts_per_tok=2, lm_head_bias=True),
    "qwen2-vision": dict(
        model_type="qwen2_vl", **{"class": "Qwen2VLForConditionalGeneration"},
        text_config=of(
            "qwen2_vl_text", without=["head_dim"], **{"hidden_size": 32},
            rope_parameters=dict(rope_type="default", rope_theta=1e4, mrope_section=[2, 1, 1]),
        ),
        vision_config=dict(model_type="qwen2_vl", depth=1, embed_dim=8, hidden_size=32, num_heads=2, patch_size=2),
        image_token_id=39, video_token_id=38, vision_start_token_id=37, vision_end_token_id=36,
    ),
    "qwen3-next": of(
        "qwen3_next", **DELTA, **EXPERTS, shared_expert_intermediate_size=12,
        layer_types=["linear_attention", "full_attention"], partial_rotary_factor=0.5,
    ),
    "qwen3-vision-moe": dict(
        model_type="qwen3_vl_moe", **{"class": "Qwen3VLMoeForConditionalGeneration"},
        text_config=of(
            "qwen3_vl_moe_text", **EXPERTS,
            rope_parameters=dict(rope_type="default", rope_theta=1e4, mrope_section=[2, 1, 1]),
        ),
        vision_config=dict(
            model_type="qwen3_vl_moe", depth=1, hidden_size=8, intermediate_size=8, num_heads=2, out_hidden_size=16,
            patch_size=2, num_position_embeddings=4, deepstack_visual_indexes=[0],
        ),
        image_token_id=39, video_token_id=38, vision_start_token_id=37, vision_end_token_id=36,
    ),
    "qwen3.5": of(
        "qwen3_5_text", **DELTA, layer_types=["linear_attention", "full_attention"],
        rope_parameters=dict(rope_type="default", rope_theta=1e4, partial_rotary_factor=0.5, mrope_section=[1, 1, 0]),
    ),
    "recurrent-gemma": of(
        "recurrent_gemma", **{"num_hidden_layers": 3, "num_key_value_heads": 1, "head_dim": 4}, lru_width=16,
        attention_window_size=5, conv1d_width=3, block_types=["recurrent", "recurrent", "attention"],
        logits_soft_cap=3.0,
    ),
    "seed-oss": of("seed_oss", attention_bias=True, attention_out_bias=False),
    "vaultgemma": of("vaultgemma", layer_types=WINDOWED, sliding_window=5, query_pre_attn_scalar=8),
    "xglm": dict(
        model_type="xglm", vocab_size=40, d_model=16, ffn_dim=24, num_layers=2, attention_heads=4,
        max_position_embeddings=64, bos_token_id=1, eos_token_id=2, pad_token_id=0,
    ),
    "youtu": of("youtu", **LATENT),
}

"""Settings that no scenario holds: what costs nothing, and what the profile of the software decides."""

from __future__ import annotations

import re

IGNORED = re.compile(
    r"""^(
    ( data | dataset | tokenizer | vocab_file | merge_file | mock | split | log | logger | wandb | tensorboard | save |
      load | ckpt | dist_ckpt | checkpoint | eval | train | lr | min_lr | max_lr | adam | weight_decay | clip_grad | clip |
      seed | init_method | timing | profile | profiling | nsys | exit | distributed_timeout | distributed_backend |
      master | node_rank | rdzv | nproc | nnodes | node | rank | num_workers | override | finetune | rampup | train_iters |
      ft | job | metrics | comm_timeout | experiment | mlflow | comet | hf | rerun | straggler | nccl_communicator |
      rotary | rope | mscale | beta | norm_epsilon | layernorm_epsilon |
      initial_loss_scale | hysteresis | loss_scale | min_loss_scale | fp8_amax | fp8_margin | fp8_interval | manual_gc |
      make_vocab_size_divisible_by | max_position_embeddings | original_max_position | moe_aux_loss | moe_z_loss |
      moe_router_(load_balancing_type|score|topk_scaling|enable_expert_bias|bias_update|dtype|pre_softmax|force_biased) |
      moe_input_jitter | moe_per_layer | moe_token_drop_policy | mtp_loss | enable_experimental | use_mcore_models |
      transformer_impl | no_create_attention_mask | no_mmap | no_save | no_load | no_check | check_for | auto_detect |
      use_checkpoint | non_persistent | apply_query_key | attention_softmax_in_fp32 | config_logger | no_rope |
      seq_len_interpolation | inference | dump_folder | deterministic | norm_num_groups | bias | wgrad_deferral | decoupled
    ) ( _.* )? | .*_ ( path | dir | folder | interval | file ) | normalization | use_flash_attn | attention_backend | disable_bias_linear |
    add_bias_linear | add_qkv_bias | params_dtype | pipeline_dtype | steps | max_norm | test_mode | timers | variable_seq_lengths
    )$""",
    re.VERBOSE,
)


def costs_nothing(name: str) -> bool:
    """Whether a setting has no bearing on time and memory of a step."""
    return IGNORED.match(name) is not None


PROFILED = re.compile(
    r"""^(
    .*_fusion | cross_entropy_.* | tp_comm_.* | batch_p2p_.* | moe_(deepep|hybridep)_num_sms | gradient_reduce_.* |
    average_in_collective | deallocate_pipeline_outputs | persist_layer_norm | (scatter|clone)_.*_embedding.* |
    fused_single_qkv_rope | nccl_ub | moe_apply_probs_on_input | align_(param_gather|grad_reduce) | calculate_per_token_loss
    )$""",
    re.VERBOSE,
)


def left_to_profile(name: str) -> bool:
    """Whether a setting is one that the profile of the software decides for every run."""
    return PROFILED.match(name) is not None

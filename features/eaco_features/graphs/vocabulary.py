"""Which class of kernel an ATen operation is: some forty words that a model sees, instead of 2,000 names."""

from __future__ import annotations

from typing import Literal, get_args

Phase = Literal["fwd", "bwd", "opt"]
PHASES: tuple[str, ...] = get_args(Phase)

UNKNOWN = "unknown"

_MEMBERS: dict[str, str] = {
    "conv": "convolution convolution_overrideable mkldnn_convolution cudnn_convolution slow_conv2d",
    "conv_depthwise": "",
    "conv_transposed": "",
    "matmul": "mm addmm addmm_activation mv addmv dot vdot scaled_mm int_mm linear addr",
    "batched_matmul": "bmm baddbmm addbmm trilinear grouped_mm",
    "attention": "eaco.attention scaled_dot_product_flash_attention scaled_dot_product_flash_attention_for_cpu"
    " scaled_dot_product_efficient_attention flash_attention efficient_attention",
    "rnn": "eaco.rnn mkldnn_rnn_layer cudnn_rnn thnn_fused_lstm_cell thnn_fused_gru_cell",
    "embedding": "embedding embedding_dense embedding_sparse embedding_renorm",
    "embedding_bag": "embedding_bag embedding_bag_dense embedding_bag_forward_only embedding_bag_per_sample_weights",
    "batch_norm": "batch_norm cudnn_batch_norm batch_norm_legit batch_norm_with_update",
    "layer_norm": "layer_norm fused_rms_norm",
    "group_norm": "group_norm",
    "softmax": "softmax log_softmax safe_softmax",
    "loss": "nll_loss nll_loss2d mse_loss smooth_l1_loss huber_loss binary_cross_entropy soft_margin_loss"
    " binary_cross_entropy_with_logits multi_margin_loss multilabel_margin_loss ctc_loss eaco.ctc_loss l1_loss",
    "activation": "relu threshold leaky_relu gelu silu elu hardtanh hardswish hardsigmoid sigmoid tanh prelu"
    " prelu_kernel mish softplus softshrink hardshrink glu log_sigmoid log_sigmoid_forward rrelu_with_noise celu selu"
    " rrelu relu6",
    "dropout": "dropout",
    "pool": "max_pool1d max_pool2d max_pool2d_with_indices max_pool3d_with_indices avg_pool1d avg_pool2d avg_pool3d"
    " adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool2d adaptive_max_pool3d max_unpool2d",
    "upsample": "upsample_nearest1d upsample_nearest2d upsample_nearest3d upsample_bilinear2d upsample_linear1d"
    " upsample_bicubic2d upsample_trilinear3d grid_sampler_2d grid_sampler_3d pixel_shuffle pixel_unshuffle"
    " upsample_nearest_exact1d upsample_nearest_exact2d upsample_bilinear2d_aa upsample_bicubic2d_aa",
    "add": "add sub rsub addcmul addcdiv lerp",
    "mul": "amp_update_scale mul div reciprocal true_divide floor_divide remainder fmod",
    "pointwise_math": "exp exp2 expm1 log log2 log10 log1p sqrt rsqrt pow sin cos tan asin acos atan atan2 sinh cosh"
    " abs neg sign square erf erfc erfinv floor ceil round trunc frac sgn clamp clamp_min clamp_max maximum minimum"
    " fmax fmin lgamma digamma polygamma xlogy logaddexp hypot logit nan_to_num angle conj_physical asinh acosh atanh",
    "compare": "eq ne lt le gt ge logical_and logical_or logical_not logical_xor bitwise_and bitwise_or bitwise_not"
    " bitwise_xor isnan isinf isfinite equal bitwise_left_shift bitwise_right_shift isin bucketize",
    "select": "where masked_fill masked_scatter masked_select nonzero tril triu",
    "reduce": "sum mean prod amax amin max min any all var std var_mean std_mean logsumexp nansum count_nonzero aminmax"
    " argmax argmin median value_selecting_reduction max_dim min_dim",
    "norm_reduce": "linalg_vector_norm norm renorm weight_norm weight_norm_interface dist pdist_forward cdist"
    " cdist_forward cosine_similarity linalg_matrix_norm",
    "scan": "cumsum cumprod cummax cummin logcumsumexp",
    "sort": "sort topk argsort kthvalue unique unique2 unique_dim unique_consecutive searchsorted",
    "gather": "gather index index_select take take_along_dim repeat_interleave",
    "scatter": "scatter scatter_add scatter_reduce index_put index_put_impl index_add index_copy index_fill"
    " select_scatter slice_scatter put histc bincount diagonal_scatter index_reduce",
    "slice_grad": "slice select diagonal unfold as_strided",
    "concat": "cat stack",
    "pad": "constant_pad_nd pad reflection_pad1d reflection_pad2d replication_pad1d replication_pad2d reflection_pad3d"
    " replication_pad3d roll flip rot90",
    "copy": "copy clone contiguous repeat expand_copy im2col col2im channel_shuffle to_sparse to_dense view_copy"
    " permute_copy pack_padded_sequence pad_packed_sequence complex polar",
    "cast": "to_copy",
    "fill": "zeros ones full zero fill zeros_like ones_like full_like new_zeros new_ones new_full arange linspace eye"
    " scalar_tensor tril_indices triu_indices one_hot logspace efficientzerotensor",
    "random": "rand randn randint randperm rand_like randn_like randint_like normal uniform bernoulli random"
    " exponential multinomial log_normal geometric cauchy poisson standard_gamma sample_dirichlet normal_functional",
    "fft": "fft_c2c fft_r2c fft_c2r",
    "linalg": "linalg_qr linalg_svd linalg_eigh linalg_solve_ex linalg_inv_ex linalg_cholesky_ex linalg_lu_factor_ex"
    " linalg_det linalg_slogdet linalg_eig triangular_solve linalg_solve_triangular cholesky cholesky_solve geqrf"
    " linalg_householder_product orgqr linalg_lu linalg_pinv linalg_cross",
    "sparse": "sparse_mm sparse_addmm sparse_sum coalesce sparse_mask sparse_coo_tensor_with_dims_and_indices"
    " sparse_coo_tensor_with_dims_and_tensors sparse_softmax",
    "multi_tensor": "",
    "fused_optimizer": "",
    "read_value": "local_scalar_dense",
}

OP_CLASSES: tuple[str, ...] = (*_MEMBERS, UNKNOWN)
"""Every class a node can have, in a fixed order (an index into it is a stable code)."""

_CLASS_OF = {member: kind for kind, members in _MEMBERS.items() for member in members.split()}
_ENDINGS = ("_backward_data", "_backward_input", "_backward_weight", "_double_backward", "_backward", "_forward")


def classify(op: str) -> str:
    """The class of an operation: ``convolution_backward`` -> ``conv``; what nobody knows is ``unknown``.

    A backward is of its forward's class, an in-place one of its out-of-place one's. Namespaces other than ATen's are
    part of the name (``eaco.attention``).
    """
    if op.startswith("_foreach_") or op.startswith("_amp_foreach_"):
        return "multi_tensor"
    if op.startswith("_fused_") and op.removeprefix("_fused_").startswith(("adam", "sgd", "adagrad")):
        return "fused_optimizer"
    name = op.strip("_")
    for ending in _ENDINGS:
        shorter = name.removesuffix(ending)
        if shorter != name and shorter:
            name = shorter
            break
    return _CLASS_OF.get(name.removeprefix("native_").strip("_"), _CLASS_OF.get(name, UNKNOWN))

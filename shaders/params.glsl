/* SPDX-License-Identifier: MIT */
/*
 * Layout of the parameter block
 *
 * Included by the shaders and by broker/vulkan. Words that only one shader reads are defined in its
 * file; the build extracts them for broker/vulkan. A block is 256 bytes: the numbers of workgroups,
 * which the indirect dispatch reads; the number, over x and y, of a split dispatch's first
 * workgroup; eight addresses (0 to 4: inputs, 5 to 7: outputs); and these words. All strides and
 * sizes count elements.
 */
#define PARAM_ADDRESSES    8
#define PARAM_OUT          5 /* the first output */
#define PARAM_WORDS        44

/*
 * Words of every operator: an out-of-range flag, to which shaders write 1; the workgroups over x
 * and y of an unsplit dispatch; the batches of this dispatch. All earlier words are the operator's.
 */
#define ALL_OUT_OF_RANGE   40
#define ALL_GROUPS         41
#define BATCH_BEGIN        42
#define BATCH_END          43

/* MatMul, Gemm, Conv and ConvTranspose: see activation.glsl */
#define ACTIVATION_ID      15 /* constant's ID; its value is a function of curves.glsl, or 0 */
#define ACTIVATION         36 /* 0: none */
#define ACTIVATION_SLOPE   37 /* float bits; LOW and HIGH are also a function's parameters */
#define ACTIVATION_LOW     38
#define ACTIVATION_HIGH    39

/* MatMul and Gemm: out[z][m][n] = alpha * sum over k of a[m][k] * b[k][n] + beta * c[m][n] */
#define MATMUL_M           0
#define MATMUL_N           1
#define MATMUL_K           2
#define MATMUL_LDA         3 /* distance of A's rows in memory */
#define MATMUL_LDB         4
#define MATMUL_COL_TILES   5
#define MATMUL_TILES       6
#define MATMUL_BATCH_DIMS  8
#define MATMUL_DIMS        9  /* [6] */
#define MATMUL_A_STRIDES   15 /* [6] */
#define MATMUL_B_STRIDES   21 /* [6] */
#define MATMUL_ALPHA       27 /* the bits of a float */
#define MATMUL_BETA        28
#define MATMUL_C_ROW       29 /* strides of C; 0: broadcast */
#define MATMUL_C_COL       30

/* Conv; the spatial parameters WINDOW_* are shared with pooling */
#define WINDOW_IN_H        0
#define WINDOW_IN_W        1
#define WINDOW_OUT_H       2
#define WINDOW_OUT_W       3
#define WINDOW_KERNEL_H    4
#define WINDOW_KERNEL_W    5
#define WINDOW_STRIDE_H    6
#define WINDOW_STRIDE_W    7
#define WINDOW_DILATION_H  8
#define WINDOW_DILATION_W  9
#define WINDOW_PAD_H       10
#define WINDOW_PAD_W       11
#define WINDOW_TOTAL       12 /* outputs, if each is computed by one invocation */
#define CONV_IN_CHANNELS   13 /* per group */
#define CONV_OUT_CHANNELS  14 /* per group */
#define CONV_GROUPS        15
#define CONV_COL_TILES     17
#define CONV_TILES         18
#define CONV_HAS_BIAS      19
#define WINDOW_IN_D        20 /* depth's words, in the order of height's and width's above */
#define WINDOW_OUT_D       21
#define WINDOW_KERNEL_D    22
#define WINDOW_STRIDE_D    23
#define WINDOW_DILATION_D  24
#define WINDOW_PAD_D       25
#define POOL_PAD_END       26 /* [3] */
#define POOL_P             29 /* LpPool */
#define POOL_FLAGS         30
#define POOL_INCLUDES_PAD  1
#define POOL_COLUMN_MAJOR  2
#define POOL_HAS_INDEX     4
/* The word of dimension d (depth, height, width) of a parameter whose word for height is @first */
#define WINDOW_OF(first, d) ((d) == 0 ? WINDOW_IN_D + (first) / 2 : (first) + (d) - 1)
/* The kinds of pool.comp */
#define POOL_MAX           0
#define POOL_AVERAGE       1
#define POOL_LP            2

/* Elementwise: out[i] = f(a[...], b[...], c[...]) over up to 8 dimensions */
#define ELEMENTWISE_TOTAL  0
#define ELEMENTWISE_GROUPS 1
#define ELEMENTWISE_RANK   2 /* 0: all operands have the output's layout */
#define ELEMENTWISE_DIMS   3 /* [8] */
#define ELEMENTWISE_A      11 /* strides [8] */
#define ELEMENTWISE_B      19
#define ELEMENTWISE_C      27
#define ELEMENTWISE_PARAMS 35 /* [4]: the function's parameters, as in union op_params */

/* Operators along one dimension: outer * inner rows; the size elements of a row are inner apart */
#define ROWS_TOTAL         0 /* outer * inner */
#define ROWS_SIZE          1
#define ROWS_INNER         2
#define ROWS_GROUPS        3
#define ROWS_K             4 /* TopK */
#define ROWS_FLIP          5 /* TopK, ArgMax: 0xffffffff for the smallest */
#define ROWS_LAST          6 /* ArgMax: 1: the last of equal values */
#define ROWS_LOG           7 /* LogSoftmax */
#define ROWS_SCAN          8 /* CumSum: 1: exclusive, 2: reverse */
#define ROWS_P             9 /* LpNormalization */

/* Reductions: up to 4 groups of kept and 4 of reduced dimensions */
#define REDUCE_OUTPUTS     0
#define REDUCE_SIZE        1 /* elements of one result */
#define REDUCE_GROUPS      2
#define REDUCE_KEPT        3 /* number of kept dimensions; the next word: of reduced ones */
#define REDUCE_SUMMED      4
#define REDUCE_KEPT_DIMS   5 /* [4] */
#define REDUCE_KEPT_STRIDE 9
#define REDUCE_SUM_DIMS    13
#define REDUCE_SUM_STRIDE  17
#define REDUCE_KIND        21

/* Normalisations: rows of adjacent elements; for BatchNormalization, all elements form one row */
#define NORM_ROWS          0 /* BatchNormalization: elements */
#define NORM_LEN           1
#define NORM_RUN           2 /* elements that share a scale */
#define NORM_PERIOD        3 /* rows; BatchNormalization: channels */
#define NORM_FLAGS         4
#define NORM_EPSILON       5 /* the bits of a float */
#define NORM_GROUPS        6 /* BatchNormalization */
/*
 * Flags: the operands that are present, and whether each element of a row has its own scale or
 * bias.
 */
#define NORM_RMS           1
#define NORM_SCALE         2
#define NORM_SCALE_EACH    4
#define NORM_BIAS          8
#define NORM_BIAS_EACH     16
#define NORM_MEAN          32
#define NORM_INV           64

/* Attention */
#define ATTENTION_QUERIES    0 /* of all heads and batches */
#define ATTENTION_KEYS       1 /* of one head */
#define ATTENTION_Q_HEADS    2
#define ATTENTION_KV_HEADS   3
#define ATTENTION_Q_LEN      4
#define ATTENTION_PAST       5
#define ATTENTION_HEAD       6
#define ATTENTION_VALUE      7
#define ATTENTION_Q_BATCH    8 /* strides */
#define ATTENTION_Q_HEAD     9
#define ATTENTION_Q_ROW      10
#define ATTENTION_K_BATCH    11
#define ATTENTION_K_HEAD     12
#define ATTENTION_K_ROW      13
#define ATTENTION_V_BATCH    14
#define ATTENTION_V_HEAD     15
#define ATTENTION_V_ROW      16
#define ATTENTION_Y_BATCH    17
#define ATTENTION_Y_HEAD     18
#define ATTENTION_Y_ROW      19
#define ATTENTION_MASK_BATCH 20
#define ATTENTION_MASK_HEAD  21
#define ATTENTION_MASK_ROW   22
#define ATTENTION_MASK_COLS  23
#define ATTENTION_SCALE      24 /* the bits of floats */
#define ATTENTION_SOFTCAP    25
#define ATTENTION_FLAGS      26
#define ATTENTION_QK_MODE    27
#define ATTENTION_GROUPS     28 /* workgroups, if each computes several queries of one key head */
#define ATTENTION_BLOCKS     29 /* blocks of queries of such a head */
#define ATTENTION_CAUSAL     1
#define ATTENTION_HAS_MASK   2
#define ATTENTION_MASK_BOOL  4
#define ATTENTION_HAS_VALID  8
#define ATTENTION_HAS_QK     16
#define ATTENTION_MASK_HALF  32 /* the mask is float16; otherwise, unless bool, float32 */

/*
 * Products and convolutions of bytes, beside the words of MatMul or Conv. A is the convolution's
 * input.
 */
#define INTEGER_A_FLIP      31 /* XOR mask: 0x80 makes signed bytes unsigned; else 0 */
#define INTEGER_B_FLIP      32
#define INTEGER_A_ZEROS     33 /* zero points of rows, columns or channels; 1: common; 0: none */
#define INTEGER_B_ZEROS     34

/* copy */
#define COPY_WORDS         0 /* words of 4 bytes */
#define COPY_GROUPS        1
#define COPY_REST          2 /* bytes behind the words, 0 to 3 */

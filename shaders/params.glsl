/* SPDX-License-Identifier: MIT */
/*
 * What stands where in a parameter block
 *
 * Included by the shaders and by broker/vulkan/lower.c. A block is 256 bytes: the numbers of
 * workgroups (which the indirect dispatch reads) and the number of the first one of the x and y of
 * a dispatch that is cut, eight addresses (0 to 4 inputs, 5 to 7 outputs) and these words. All strides and sizes count elements.
 */
#define PARAM_ADDRESSES    8
#define PARAM_OUT          5 /* the first output */
#define PARAM_WORDS        44

/*
 * Of every operator: a word that shaders write to, 1 if an index was out of range; workgroups over
 * x and y if it is not cut; the batches of this dispatch. All words before are the operator's.
 */
#define ALL_OUT_OF_RANGE   40
#define ALL_GROUPS         41
#define BATCH_BEGIN        42
#define BATCH_END          43

/* MatMul, Gemm, Conv and ConvTranspose: see activation.glsl */
#define ACTIVATION_ID      15 /* of a constant of the pipeline's: a function of curves.glsl, or 0 */
#define ACTIVATION         36 /* 0: none */
#define ACTIVATION_SLOPE   37 /* the bits of floats; the next two are a function's parameters, too */
#define ACTIVATION_LOW     38
#define ACTIVATION_HIGH    39

/* MatMul and Gemm: out[z][m][n] = alpha * sum over k of a[m][k] * b[k][n] + beta * c[m][n] */
#define MATMUL_M           0
#define MATMUL_N           1
#define MATMUL_K           2
#define MATMUL_LDA         3 /* distance of rows of A as it is stored */
#define MATMUL_LDB         4
#define MATMUL_COL_TILES   5
#define MATMUL_TILES       6
#define MATMUL_BATCH_DIMS  8
#define MATMUL_DIMS        9  /* [6] */
#define MATMUL_A_STRIDES   15 /* [6] */
#define MATMUL_B_STRIDES   21 /* [6] */
#define MATMUL_ALPHA       27 /* the bits of a float */
#define MATMUL_BETA        28
#define MATMUL_C_ROW       29 /* strides of C, 0 where it is broadcast */
#define MATMUL_C_COL       30

/* Conv; a "window" operator's spatial parameters are the same in pooling */
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
#define WINDOW_TOTAL       12 /* outputs, where each is an invocation's */
#define CONV_IN_CHANNELS   13 /* per group */
#define CONV_OUT_CHANNELS  14 /* per group */
#define CONV_GROUPS        15
#define CONV_COL_TILES     17
#define CONV_TILES         18
#define CONV_HAS_BIAS      19
#define WINDOW_IN_D        20 /* and so on, as those of height and width above */
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
/* The word of dimension d (depth, height, width) of which first is height's */
#define WINDOW_OF(first, d) ((d) == 0 ? WINDOW_IN_D + (first) / 2 : (first) + (d) - 1)
/* What pool.comp computes */
#define POOL_MAX           0
#define POOL_AVERAGE       1
#define POOL_LP            2

/* Element by element: out[i] = f(a[...], b[...], c[...]) over up to 8 dimensions */
#define ELEMENTWISE_TOTAL  0
#define ELEMENTWISE_GROUPS 1
#define ELEMENTWISE_RANK   2 /* 0: all operands lie alike */
#define ELEMENTWISE_DIMS   3 /* [8] */
#define ELEMENTWISE_A      11 /* strides [8] */
#define ELEMENTWISE_B      19
#define ELEMENTWISE_C      27
#define ELEMENTWISE_PARAMS 35 /* see map.glsl: [4] */

/* Moves: elements and strides of the box, from an address, which is 0 for a value */
#define MOVE_TOTAL         0
#define MOVE_GROUPS        1
#define MOVE_RANK          2
#define MOVE_PITCH         3 /* words of a dimension: 2 if out is written in order, else 3 */
#define MOVE_FROM          4 /* the first element */
#define MOVE_TO            5
#define MOVE_DIMS          6 /* [rank]: size, stride from, stride to */
#define MOVE_VALUE         39 /* [2] */

/* Operators along one dimension: outer * inner rows of size elements, inner apart */
#define ROWS_TOTAL         0 /* outer * inner */
#define ROWS_SIZE          1
#define ROWS_INNER         2
#define ROWS_GROUPS        3
#define ROWS_K             4 /* TopK */
#define ROWS_FLIP          5 /* TopK, ArgMax: 0xffffffff for the smallest */
#define ROWS_LAST          6 /* ArgMax: of equal ones the last */
#define ROWS_LOG           7 /* LogSoftmax */
#define ROWS_SCAN          8 /* CumSum: 1: exclusive, 2: reverse */
#define ROWS_P             9 /* LpNormalization */

/* Reductions: up to 4 groups of kept and 4 of reduced dimensions */
#define REDUCE_OUTPUTS     0
#define REDUCE_SIZE        1 /* elements in one sum */
#define REDUCE_GROUPS      2
#define REDUCE_KEPT        3 /* numbers of dimensions */
#define REDUCE_SUMMED      4
#define REDUCE_KEPT_DIMS   5 /* [4] */
#define REDUCE_KEPT_STRIDE 9
#define REDUCE_SUM_DIMS    13
#define REDUCE_SUM_STRIDE  17
#define REDUCE_KIND        21

/* Normalisations: rows of neighbours; BatchNormalization, all of them as if in one row */
#define NORM_ROWS          0 /* BatchNormalization: elements */
#define NORM_LEN           1
#define NORM_RUN           2 /* elements that share a scale */
#define NORM_PERIOD        3 /* of rows; BatchNormalization: channels */
#define NORM_FLAGS         4
#define NORM_EPSILON       5 /* the bits of a float */
#define NORM_GROUPS        6 /* BatchNormalization */
/* Flags: what there is, and whether every element of a row has its own. */
#define NORM_RMS           1
#define NORM_SCALE         2
#define NORM_SCALE_EACH    4
#define NORM_BIAS          8
#define NORM_BIAS_EACH     16
#define NORM_MEAN          32
#define NORM_INV           64

/* RotaryEmbedding: pairs and elements that are copied */
#define ROTARY_TOTAL       0
#define ROTARY_GROUPS      1
#define ROTARY_HEADS       2
#define ROTARY_SEQ         3
#define ROTARY_HEAD        4 /* elements of a head */
#define ROTARY_DIM         5 /* that are turned */
#define ROTARY_INTERLEAVED 6
#define ROTARY_POSITIONS   7 /* in the caches; 0: they are by token */
#define ROTARY_SEQ_STRIDE  8
#define ROTARY_HEAD_STRIDE 9

/* Attention's present keys or values */
#define PRESENT_TOTAL       0
#define PRESENT_GROUPS      1
#define PRESENT_HEADS       2
#define PRESENT_PAST        3
#define PRESENT_SEQ         4
#define PRESENT_SIZE        5
#define PRESENT_HEAD_STRIDE 6
#define PRESENT_ROW_STRIDE  7

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
#define ATTENTION_GROUPS     28 /* where a workgroup has several queries of one head of keys */
#define ATTENTION_BLOCKS     29 /* of queries of such a head */
#define ATTENTION_CAUSAL     1
#define ATTENTION_HAS_MASK   2
#define ATTENTION_MASK_BOOL  4
#define ATTENTION_HAS_VALID  8
#define ATTENTION_HAS_QK     16
#define ATTENTION_MASK_HALF  32 /* float16; else, where it is not of bools, float32 */

/* Indices are int32 or, wide, int64 */

/* Gather, GatherND: rows of x, in pieces of as many bytes as divide them, which all sizes count */
#define GATHER_TOTAL       0
#define GATHER_GROUPS      1
#define GATHER_WIDE        2
#define GATHER_RUN         3 /* of a row */
#define GATHER_ROWS        4 /* for each outer one */
#define GATHER_X_OUTER     5
#define GATHER_INDEX_OUTER 6 /* in indices */
#define GATHER_N           7 /* indices that make one */
#define GATHER_LIMITS      8 /* [8] */
#define GATHER_STRIDES     16 /* [8] */

/* GatherElements: indices in order, and where in x each would be that is 0 */
#define ELEMENTS_TOTAL     0
#define ELEMENTS_GROUPS    1
#define ELEMENTS_WIDE      2
#define ELEMENTS_LIMIT     3
#define ELEMENTS_STEP      4 /* along the axis of x */
#define ELEMENTS_RANK      5
#define ELEMENTS_DIMS      8 /* [8] */
#define ELEMENTS_STRIDES   16 /* [8]; 0 along the axis */

/* ScatterElements, ScatterND: the output in order */
#define SCATTER_TOTAL      0
#define SCATTER_GROUPS     1
#define SCATTER_WIDE       2
#define SCATTER_REDUCTION  3 /* enum op_scatter */
#define SCATTER_N          4 /* ScatterND: numbers that make an index; 0: ScatterElements */
#define SCATTER_COUNT      5 /* updates that may be meant for an element */
#define SCATTER_RUN        6 /* ScatterND: elements of a row */
#define SCATTER_LIMITS     8 /* ScatterND: [8] */
#define SCATTER_STRIDES    16 /* ScatterND: [8], in rows */
#define SCATTER_RANK       7 /* ScatterElements */
#define SCATTER_DIMS       8 /* ScatterElements: [8], of the output */
#define SCATTER_FLAT_DIMS  16 /* ScatterElements: [8], of indices and updates; the axis is 1 long */
#define SCATTER_FLAT       24 /* ScatterElements: [8], strides of these */
#define SCATTER_AXIS       32 /* ScatterElements: which dimension */
#define SCATTER_STEP       33 /* ScatterElements: of indices along the axis */

/* OneHot, Trilu: the output in order */
#define ONE_HOT_TOTAL      0
#define ONE_HOT_GROUPS     1
#define ONE_HOT_WIDE       2
#define ONE_HOT_DEPTH      3
#define ONE_HOT_INNER      4
#define TRILU_TOTAL        0
#define TRILU_GROUPS       1
#define TRILU_ROWS         2
#define TRILU_COLUMNS      3
#define TRILU_K            4 /* two's complement */
#define TRILU_UPPER        5

/* QuantizeLinear, DequantizeLinear: of [outer][axis][inner] elements, and where their scales are */
#define QUANTIZE_TOTAL      0
#define QUANTIZE_GROUPS     1
#define QUANTIZE_INNER      2
#define QUANTIZE_AXIS       3
#define QUANTIZE_BLOCK      4 /* along the axis, of one scale */
#define QUANTIZE_OUTER_STEP 5 /* of scales; 0 where they repeat */
#define QUANTIZE_AXIS_STEP  6
#define QUANTIZE_INNER_STEP 7
#define QUANTIZE_HAS_ZERO   8

/* DynamicQuantizeLinear: ranges of pieces, one per workgroup */
#define RANGE_TOTAL         0
#define RANGE_PIECES        1
#define RANGE_PIECE         2 /* elements of one */

/* Products and convolutions of bytes: beside the words of MatMul or Conv, whose input is A here */
#define INTEGER_A_FLIP      31 /* what makes bytes count from 0 on: 0x80 of signed ones, else 0 */
#define INTEGER_B_FLIP      32
#define INTEGER_A_ZEROS     33 /* zero points: of each row or all, of each column or channel; 0: none */
#define INTEGER_B_ZEROS     34

/* Their sums into bytes: scale i / run % n of n */
#define REQUANTIZE_TOTAL    0
#define REQUANTIZE_GROUPS   1
#define REQUANTIZE_A_RUN    2
#define REQUANTIZE_A        3
#define REQUANTIZE_B_RUN    4
#define REQUANTIZE_B        5
#define REQUANTIZE_HAS_ZERO 6

/* MatMulNBits */
#define NBITS_M             0
#define NBITS_N             1
#define NBITS_K             2
#define NBITS_BLOCKS        3
#define NBITS_BLOCK_WORDS   4 /* of eight terms */
#define NBITS_COL_TILES     5
#define NBITS_TILES         6
#define NBITS_ZEROS         7 /* 0: none, 1: of four bits, 2: float32, 3: float16 */
#define NBITS_HAS_BIAS      8

/* copy */
#define COPY_WORDS         0 /* of 4 bytes */
#define COPY_GROUPS        1
#define COPY_REST          2 /* bytes behind the words, 0 to 3 */

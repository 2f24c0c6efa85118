/* SPDX-License-Identifier: MIT */
/*
 * What stands where in a parameter block
 *
 * Included by the shaders and by broker/vulkan/lower.c. A block is 256 bytes: the numbers of
 * workgroups (which the indirect dispatch reads) and the number of the first one of the x and y of
 * a dispatch that is cut, five addresses (0 to 2 inputs, 3 and 4 outputs) and these words. All strides and sizes count elements.
 */
#define PARAM_ADDRESSES    5
#define PARAM_WORDS        50

/* Of every operator: workgroups over x and y if it is not cut; the batches of this dispatch */
#define ALL_GROUPS         47
#define BATCH_BEGIN        48
#define BATCH_END          49

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

/* Conv; a "window" operator's spatial parameters are the same in MaxPool */
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
#define WINDOW_TOTAL       12 /* MaxPool: outputs */
#define CONV_IN_CHANNELS   13 /* per group */
#define CONV_OUT_CHANNELS  14 /* per group */
#define CONV_GROUPS        15
#define CONV_COL_TILES     17
#define CONV_TILES         18
#define CONV_HAS_BIAS      19

/* Add, Mul, Relu, Transpose: out[i] = f(a[...], b[...]) over up to 8 dimensions */
#define ELEMENTWISE_TOTAL  0
#define ELEMENTWISE_GROUPS 1
#define ELEMENTWISE_RANK   2 /* 0: all operands lie alike */
#define ELEMENTWISE_DIMS   3 /* [8] */
#define ELEMENTWISE_A      11 /* strides [8] */
#define ELEMENTWISE_B      19

/* Softmax and TopK: outer * inner rows of size elements, inner apart */
#define ROWS_TOTAL         0 /* outer * inner */
#define ROWS_SIZE          1
#define ROWS_INNER         2
#define ROWS_GROUPS        3
#define ROWS_K             4 /* TopK */
#define ROWS_FLIP          5 /* TopK: 0xffffffff for the smallest */

/* ReduceSum: up to 4 groups of kept and 4 of summed dimensions */
#define REDUCE_OUTPUTS     0
#define REDUCE_SIZE        1 /* elements in one sum */
#define REDUCE_GROUPS      2
#define REDUCE_KEPT        3 /* numbers of dimensions */
#define REDUCE_SUMMED      4
#define REDUCE_KEPT_DIMS   5 /* [4] */
#define REDUCE_KEPT_STRIDE 9
#define REDUCE_SUM_DIMS    13
#define REDUCE_SUM_STRIDE  17

/* copy */
#define COPY_WORDS         0 /* of 4 bytes */
#define COPY_GROUPS        1

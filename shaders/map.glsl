/* SPDX-License-Identifier: MIT */
/*
 * The functions of elementwise.comp and typed.comp, by number
 *
 * Included by the shaders and by broker/vulkan/pipeline-map.c. Parameters, where a function has any,
 * stand in the words ELEMENTWISE_PARAMS and after, as in union op_params.
 */

/* Of one or two floats that give a float: elementwise.comp */
#define MAP_ADD              0
#define MAP_SUB              1
#define MAP_MUL              2
#define MAP_DIV              3
#define MAP_POW              4
#define MAP_FMOD             5
#define MAP_MIN              6
#define MAP_MAX              7
#define MAP_PRELU            8
#define MAP_CLIP             9
#define MAP_ABS              10
#define MAP_NEG              11
#define MAP_SIGN             12
#define MAP_FLOOR            13
#define MAP_CEIL             14
#define MAP_ROUND            15
#define MAP_SQRT             16
#define MAP_RECIPROCAL       17
#define MAP_EXP              18
#define MAP_LOG              19
#define MAP_ERF              20
#define MAP_SIN              21
#define MAP_COS              22
#define MAP_TAN              23
#define MAP_ASIN             24
#define MAP_ACOS             25
#define MAP_ATAN             26
#define MAP_SINH             27
#define MAP_COSH             28
#define MAP_TANH             29
#define MAP_ASINH            30
#define MAP_ACOSH            31
#define MAP_ATANH            32
#define MAP_RELU             33
#define MAP_LEAKY_RELU       34
#define MAP_THRESHOLDED_RELU 35
#define MAP_ELU              36
#define MAP_SELU             37
#define MAP_CELU             38
#define MAP_GELU             39
#define MAP_GELU_TANH        40
#define MAP_SIGMOID          41
#define MAP_HARD_SIGMOID     42
#define MAP_HARD_SWISH       43
#define MAP_SWISH            44
#define MAP_MISH             45
#define MAP_SOFTPLUS         46
#define MAP_SOFTSIGN         47
#define MAP_FLOATS           48 /* how many */

/* Of integers, and those that give another type: typed.comp, beside some of the above */
#define MAP_MOD              48
#define MAP_EQUAL            49
#define MAP_LESS             50
#define MAP_LESS_OR_EQUAL    51
#define MAP_GREATER          52
#define MAP_GREATER_OR_EQUAL 53
#define MAP_AND              54
#define MAP_OR               55
#define MAP_XOR              56
#define MAP_BITWISE_AND      57
#define MAP_BITWISE_OR       58
#define MAP_BITWISE_XOR      59
#define MAP_SHIFT_LEFT       60
#define MAP_SHIFT_RIGHT      61
#define MAP_BITWISE_NOT      62
#define MAP_NOT              63
#define MAP_IS_NAN           64
#define MAP_IS_INF           65
#define MAP_CAST             66
#define MAP_WHERE            67
#define MAP_COUNT            68

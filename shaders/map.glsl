/* SPDX-License-Identifier: MIT */
/*
 * The functions of elementwise.comp and typed.comp, by number
 *
 * Included by the shaders and by broker/vulkan/lower-elementwise.c. Parameters, where a function has
 * any, stand in the words ELEMENTWISE_PARAMS and after, as in union op_params.
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
#define MAP_FLOATS           64 /* they are all below; the next one takes the next number */

/* Of integers, and those that give another type: typed.comp, beside some of the above */
#define MAP_MOD              64
#define MAP_EQUAL            65
#define MAP_LESS             66
#define MAP_LESS_OR_EQUAL    67
#define MAP_GREATER          68
#define MAP_GREATER_OR_EQUAL 69
#define MAP_AND              70
#define MAP_OR               71
#define MAP_XOR              72
#define MAP_BITWISE_AND      73
#define MAP_BITWISE_OR       74
#define MAP_BITWISE_XOR      75
#define MAP_SHIFT_LEFT       76
#define MAP_SHIFT_RIGHT      77
#define MAP_BITWISE_NOT      78
#define MAP_NOT              79
#define MAP_IS_NAN           80
#define MAP_IS_INF           81
#define MAP_CAST             82
#define MAP_WHERE            83

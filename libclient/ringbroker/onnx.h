#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * ONNX models
 *
 * libringbroker-onnx reads an ONNX file and makes a plan of it in the client; the broker never sees
 * the file. A program loads a model, sets what the file leaves open, and has a plan made. It then
 * runs the plan like any other, with the tensors bound in the order that rbk_onnx_bound() returns:
 *
 *	rbk_onnx_load("model.onnx", &model, &error);
 *	rbk_onnx_compile(model, &(struct rbk_onnx_options){.size = sizeof(struct rbk_onnx_options),
 *							   .max_count = 16}, &error);
 *	rbk_onnx_plan(model, rbk, NULL, &plan, &error);
 *	for (i = 0; i < rbk_onnx_n_bound(model); i++) {
 *		rbk_onnx_bound(model, i, &bound);
 *		refs[i] = place for bound.bytes_fixed + count * bound.bytes_row bytes;
 *	}
 *	rbk_prep_run_table(sqe, rbk_plan_id(plan), count, table, n);
 *
 * Supported files: opsets 6 to 25 of the default domain; of earlier opsets the operators that have
 * not changed since; IR versions 3 and later; weights in the file or beside it. Nodes are converted
 * to the canonical form that the broker's catalogue has of each operator. Nodes that depend on
 * constants alone are computed while compiling. A model with nodes that the catalogue lacks is
 * refused, and all of them are reported at once: rbk_onnx_refusal() lists node, operator, opset and
 * reason.
 *
 * Functions. A node that calls a function of the file, by domain, name and overload, is replaced by
 * the function's nodes, in the opsets that the function imports. A function takes precedence over
 * an operator of the catalogue with the same name. Functions may call others, up to 128 deep, but
 * not themselves. An If whose condition is known or computed while compiling is replaced by the
 * nodes of one branch; no other control flow is supported. Sparse weights are made dense, 256 MiB
 * of them at most.
 *
 * Shapes. A leading dimension of the inputs that the file leaves open becomes the task's count.
 * Where nodes compute rows from other rows, such as a mean along that dimension, a task must hold
 * all rows that belong together: see struct rbk_onnx_step. If all inputs have the fixed leading
 * dimension 1, that dimension becomes the count too, provided that every node provably computes
 * each row from that row alone; else the model keeps its shapes. Other open dimensions must be set
 * by rbk_onnx_set_dim(). With max_count 1 every shape is fixed.
 *
 * Values. Some operators need the value of an input to infer shapes (the "starts" of Slice). Where
 * such a value comes from an input of the model, that input has value_needed set once the model is
 * compiled, and rbk_onnx_set_input() sets the value.
 *
 * Numbers follow ONNX, the same on each device within rounding. Denormals of float32 (below
 * 1.2e-38) are treated as zero in every computation: their Sign is 0, and they equal 0. Operators
 * that only move elements keep them, as does Cast between float32 and bfloat16, which has the same
 * denormals. Denormals of float16 are ordinary numbers; those of float64 (below 2.2e-308) may be
 * treated as zero.
 *
 * Types. bfloat16 tensors are bound as they are, two bytes per element. Operators that compute with
 * bfloat16 are preceded by casts to float32, and each output is rounded. Sums are therefore in
 * float32, and values between two nodes are rounded, as the model specifies. Operators that move
 * elements take bfloat16 as it is. Weights of four bits keep their format where a product reads
 * them; for other operators, weights of four and of 16 bits are converted to floats. float64 is
 * computed in double precision, by devices that support it; patterns of float64 nodes are not fused
 * into one operator. Strings, and integers of widths that enum rbk_dtype lacks, are refused, except
 * in nodes that are computed while compiling.
 *
 * A model file is hostile input: sizes and numbers are bounded, and external data is read only from
 * regular files below the model's folder. Errors are those of <ringbroker.h>: a negative errno and
 * one sentence that names the cause. Functions on one model are called by one thread at a time;
 * different models are independent.
 */
#include <stddef.h>
#include <stdint.h>
#include <ringbroker.h>

#ifdef __cplusplus
extern "C" {
#endif

struct rbk_onnx;

/*
 * Element types, with ONNX's numbers. Types that enum rbk_dtype has, too, have the same number
 * there.
 */
enum rbk_onnx_dtype {
	RBK_ONNX_F32 = 1,
	RBK_ONNX_U8 = 2,
	RBK_ONNX_I8 = 3,
	RBK_ONNX_U16 = 4,
	RBK_ONNX_I16 = 5,
	RBK_ONNX_I32 = 6,
	RBK_ONNX_I64 = 7,
	RBK_ONNX_BOOL = 9, /* a byte, 0 or 1 */
	RBK_ONNX_F16 = 10,
	RBK_ONNX_F64 = 11,
	RBK_ONNX_U32 = 12,
	RBK_ONNX_U64 = 13,
	RBK_ONNX_BF16 = 16,
	RBK_ONNX_U4 = 21, /* two to a byte, the first in the low half */
	RBK_ONNX_I4 = 22,
};

/*
 * Return a type's name, such as "float32", also for ONNX types that are not supported, such as
 * "string" (8); "unknown" for numbers that ONNX does not define. The string is static. Any thread.
 */
const char *rbk_onnx_dtype_name(uint32_t dtype);

/* Return the bytes of @n_elems elements; 0 for other numbers. Any thread. */
uint64_t rbk_onnx_dtype_bytes(uint32_t dtype, uint64_t n_elems);

/* ---- Models ------------------------------------------------------------------------------ */

/*
 * Read the model at @path. External data is searched below the folder of @path.
 * Return: 0 and the model, owned by the caller;
 *   -EBADMSG     the file is not an ONNX model, or a broken one: truncated, cyclic, names used
 *                twice, a tensor whose bytes do not match its shape, data outside of the folder, a
 *                function that calls itself or is not called as it is defined
 *   -EOPNOTSUPP  an opset or IR version that is not supported; sequences, maps and sparse tensors
 *                as inputs or outputs
 *   -EFBIG       above a limit: 2 GiB of file, 65,536 nodes (including those of branches, and of
 *                functions, counted per call), 64 GiB of weights, 2^31-1 in a dimension
 *   -ENOMEM      or another errno of open() and mmap()
 * Operators are not checked yet: a Loop, for example, is refused by rbk_onnx_compile(). Any thread.
 */
int rbk_onnx_load(const char *path, struct rbk_onnx **ret, struct rbk_error *error);

/*
 * Read a model of @n_bytes in memory, which may be freed afterwards. External data is searched
 * below @folder; with @folder NULL, a model that has external data is refused.
 */
int rbk_onnx_load_bytes(const void *bytes, size_t n_bytes, const char *folder,
			struct rbk_onnx **ret, struct rbk_error *error);

/* Free the model. Plans made of it remain valid. Return: NULL. */
struct rbk_onnx *rbk_onnx_free(struct rbk_onnx *model);

/*
 * An operator that models may contain and the broker's catalogue (rbk_catalogue()) lacks: it is
 * lowered to operators of the catalogue, or computed while compiling.
 */
struct rbk_onnx_operator {
	const char *name; /* with another domain: "com.microsoft.MatMulNBits"; static */
	uint32_t since;   /* first opset (of the operator's domain) that has it */
	uint32_t until;   /* last opset that has the operator; 0: it was not removed */
};

/*
 * Return the @i-th of these operators, in no order. Any thread. Return: 0; -EINVAL: there are no
 * more.
 */
int rbk_onnx_operator(unsigned int i, struct rbk_onnx_operator *ret);

/*
 * Return the opset of the default domain that the file imports, and the number of nodes of its
 * graph.
 */
uint32_t rbk_onnx_opset(const struct rbk_onnx *model);
uint32_t rbk_onnx_n_nodes(const struct rbk_onnx *model);

/* Most dimensions of a value. ONNX has no limit; plans have RBK_MAX_RANK. */
#define RBK_ONNX_MAX_RANK 16
#define RBK_ONNX_DIM_OPEN (-1)

/*
 * An input or an output of the model, as the file declares it. Strings live as long as the model.
 */
struct rbk_onnx_value {
	const char *name;     /* ONNX's name, not truncated; UTF-8 */
	uint32_t dtype;       /* enum rbk_onnx_dtype; an output's may be 0: see rbk_onnx_bound() */
	int32_t rank;         /* -1: not declared in the file */
	uint8_t is_optional;  /* an input with a default value in the file, which is used */
	uint8_t is_set;       /* 1: rbk_onnx_set_input() set the value */
	uint8_t value_needed; /* once compiled: 1 if inferring shapes requires the value */
	uint8_t reserved[5];
	int64_t dims[RBK_ONNX_MAX_RANK];          /* RBK_ONNX_DIM_OPEN: left open */
	const char *dim_names[RBK_ONNX_MAX_RANK]; /* an open dimension's name ("batch"), or NULL */
};

/*
 * Return the number of inputs or outputs, and the @i-th of them in the file's order. Inputs with a
 * default value (weights, in older files) are included: is_optional.
 * Return: 0; -EINVAL: @i is not below the number.
 */
unsigned int rbk_onnx_n_inputs(const struct rbk_onnx *model);
int rbk_onnx_input(const struct rbk_onnx *model, unsigned int i, struct rbk_onnx_value *ret);
unsigned int rbk_onnx_n_outputs(const struct rbk_onnx *model);
int rbk_onnx_output(const struct rbk_onnx *model, unsigned int i, struct rbk_onnx_value *ret);

/* ---- What the file leaves open ----------------------------------------------------------- */

/*
 * Fix every open dimension of that name at @size, as if the file had it; this includes leading
 * dimensions, which then do not follow the count. Call before compiling.
 * Return: 0; -EINVAL: @size is not 0..2^31-1; -ENOENT: no dimension has the name; -ENOMEM.
 */
int rbk_onnx_set_dim(struct rbk_onnx *model, const char *name, int64_t size,
		     struct rbk_error *error);

/*
 * Set the shape of input @name, as if the file had it. A dimension may be RBK_ONNX_DIM_OPEN, to
 * leave it unchanged. Intended for an input whose rank the file does not declare, or whose
 * dimensions have no name.
 * Return: 0; -EINVAL: the shape contradicts the file; -ENOENT: there is no such input; -ENOMEM.
 */
int rbk_onnx_set_shape(struct rbk_onnx *model, const char *name, int rank, const int64_t *dims,
		       struct rbk_error *error);

/* A tensor in memory, row-major without gaps. */
struct rbk_onnx_tensor {
	uint32_t dtype; /* enum rbk_onnx_dtype */
	int32_t rank;
	int64_t dims[RBK_ONNX_MAX_RANK];
	const void *data; /* n_bytes bytes */
	uint64_t n_bytes;
	const char *name; /* "": no name */
};

/*
 * Make input @name a constant with the value of @tensor, which is copied; tasks then do not bind
 * the input. With @tensor NULL, make it an ordinary input again. Call before compiling.
 * Return: 0; -EINVAL: type or shape contradict the file; -ENOENT: there is no such input; -ENOMEM.
 */
int rbk_onnx_set_input(struct rbk_onnx *model, const char *name,
		       const struct rbk_onnx_tensor *tensor, struct rbk_error *error);

/* ---- Compiling --------------------------------------------------------------------------- */

/* Optimisations that rbk_onnx_options.disable turns off. Results agree within rounding. */
#define RBK_ONNX_OPT_FOLD    (1u << 0) /* compute float nodes of constants in advance */
#define RBK_ONNX_OPT_NO_OPS  (1u << 1) /* remove nodes that change nothing */
#define RBK_ONNX_OPT_DEAD    (1u << 2) /* remove nodes whose outputs are not read */
#define RBK_ONNX_OPT_SHARE   (1u << 3) /* store equal constants once */
#define RBK_ONNX_OPT_CONV_BN (1u << 4) /* fold BatchNormalization into a Conv before it */
/*
 * Fuse several nodes into the one operator that they compute, where no other node reads the
 * intermediate results:
 *   NORM        LayerNormalization and RMSNormalization
 *   ACTIVATION  Gelu, Swish, HardSwish, Mish
 *   BIAS        an Add after MatMul, Gemm, Conv or ConvTranspose becomes the bias of Gemm, Conv or
 *               ConvTranspose
 *   ATTENTION   two MatMul and a Softmax become Attention, whose rows without any unmasked key give
 *               0 instead of NaN
 */
#define RBK_ONNX_OPT_NORM       (1u << 5)
#define RBK_ONNX_OPT_ACTIVATION (1u << 6)
#define RBK_ONNX_OPT_BIAS       (1u << 7)
#define RBK_ONNX_OPT_FUSION     (1u << 8) /* rbk_builder_disable_fusion() turns it off */
#define RBK_ONNX_OPT_ATTENTION  (1u << 9)
#define RBK_ONNX_OPT_ALL        0xffffffffu

/*
 * Options. Zero-initialise the struct and set size to sizeof(struct rbk_onnx_options). A member
 * that is 0 has its default.
 */
struct rbk_onnx_options {
	size_t size;
	uint32_t max_count; /* rows of a task, 1..2^31-1; default 1: all shapes are fixed */
	uint32_t disable;   /* RBK_ONNX_OPT_* to turn off */
	uint32_t pin;       /* 1 + RBK_DEVICE_*: run there only; 0: on any device */
	/*
	 * Include only @n_steps steps from @first_step on, numbered as by rbk_onnx_step(): tensors
	 * that they read from other steps become inputs, and tensors that they write become
	 * outputs. Serves to measure steps one by one. Default: all. Used only by rbk_onnx_plan().
	 */
	uint32_t first_step;
	uint32_t n_steps;
	uint32_t keep_batch; /* 1: fixed leading dimensions stay fixed */
};

/*
 * Compile the model: compute the plan's canonical nodes, constants and shapes. Makes no request to
 * a broker. @options may be NULL. May be called again with other options and other inputs; results
 * of the functions below are then invalid.
 * Return: 0;
 *   -EOPNOTSUPP  see rbk_onnx_refusal(); the sentence has the first refusal and their number
 *   -EINVAL      the options are impossible
 *   -EFBIG       compiling would take too much memory
 *   -ENOMEM      no memory
 */
int rbk_onnx_compile(struct rbk_onnx *model, const struct rbk_onnx_options *options,
		     struct rbk_error *error);

/*
 * A reason why the last rbk_onnx_compile() refused the model, one entry per node and reason.
 * Strings live until the next compilation, and are never NULL.
 */
struct rbk_onnx_refusal {
	uint32_t node;  /* index in the file's order; UINT32_MAX: the model itself */
	uint32_t opset; /* requested opset of the operator's domain; 0: none */
	/*
	 * the node's own name, perhaps "", or its first output's; in a function or a branch
	 * "outer/name", where member node is the node of the graph
	 */
	const char *name;
	const char *op;     /* "MatMul"; of another domain "com.example.Op"; "" for the model */
	const char *reason; /* a sentence */
};
unsigned int rbk_onnx_n_refusals(const struct rbk_onnx *model);
/* Return the @i-th refusal. Return: 0; -EINVAL: @i is not below their number. */
int rbk_onnx_refusal(const struct rbk_onnx *model, unsigned int i, struct rbk_onnx_refusal *ret);

/* A tensor that each task binds, once compiled. */
struct rbk_onnx_bound {
	const char *name; /* ONNX's name, not truncated; "": no name; as long as the model */
	uint8_t is_output;
	uint8_t reserved[3];
	uint32_t index; /* index of rbk_onnx_input() or rbk_onnx_output(); else UINT32_MAX */
	uint32_t dtype; /* enum rbk_onnx_dtype */
	uint32_t rank;  /* 0..RBK_MAX_RANK */
	uint32_t dims[RBK_MAX_RANK]; /* dims[0]: RBK_DIM_COUNT if it follows the task's count */
	uint32_t per_count; /* leading dimension per count, if dims[0] is RBK_DIM_COUNT; else 0 */
	/* number of the tensor, the same for a step that writes it and a step that reads it */
	uint32_t tensor;
	uint64_t bytes_fixed; /* bytes of a task of count rows: bytes_fixed + count * bytes_row */
	uint64_t bytes_row;
};

/*
 * Return the number of tensors that tasks of the plan bind, and the @i-th of them, in the order of
 * their references: inputs, then outputs. Inputs that no node reads are not included; nor are
 * inputs without elements (with a dimension of 0). An output without elements is included and has 0
 * bytes. Its reference must still name RBK_REF_ALIGN bytes of its own, whose contents are undefined
 * after the task. With first_step, see rbk_onnx_options, the tensors are those of the last
 * rbk_onnx_plan().
 * Return: 0; -EINVAL: @i is not below the number.
 */
unsigned int rbk_onnx_n_bound(const struct rbk_onnx *model);
int rbk_onnx_bound(const struct rbk_onnx *model, unsigned int i, struct rbk_onnx_bound *ret);

/* A node of the plan, once compiled. */
struct rbk_onnx_step {
	const char *op; /* the catalogue's operator */
	/* name of the source node, as in struct rbk_onnx_refusal; else "Transpose 3" */
	const char *name;
	uint32_t node; /* index of the source node in the file; UINT32_MAX: none */
	/*
	 * 1: the step computes rows of the count from other rows too, or a value of all rows, such
	 * as their mean. Results are right only if one task has every row; split over several
	 * tasks, the model computes something else.
	 */
	uint32_t mixes_rows;
};
unsigned int rbk_onnx_n_steps(const struct rbk_onnx *model);
/* Return the @i-th step. Return: 0; -EINVAL: @i is not below their number. */
int rbk_onnx_step(const struct rbk_onnx *model, unsigned int i, struct rbk_onnx_step *ret);

/* ---- Plans ------------------------------------------------------------------------------- */

/*
 * Have the broker of @rbk prepare the compiled model. The constants are stored in one sealed arena,
 * which lives as long as the plan needs it. If no bound tensor follows the count, the plan's tasks
 * have one row. @options are as for rbk_onnx_compile(), of which pin, first_step and n_steps are
 * used; NULL: the options given there.
 * Return: 0 and the plan, owned by the caller, independent of the model;
 *   -EINVAL  the model is not compiled, or the broker rejects the plan; the sentence has the reason
 *   -ENODEV  the device that pin names does not exist, or cannot run the plan
 *   -E2BIG   more tensors, nodes or bound tensors than a plan can have
 * or as rbk_plan_new(), rbk_arena_new() and rbk_arena_seal().
 */
int rbk_onnx_plan(struct rbk_onnx *model, struct rbk *rbk, const struct rbk_onnx_options *options,
		  struct rbk_plan **ret, struct rbk_error *error);

/* ---- Tensor files ------------------------------------------------------------------------ */

/*
 * Read a file with one TensorProto, such as "input_0.pb" of ONNX's test data: any encoding, with
 * the data in the file itself. @ret->data and @ret->name live until rbk_onnx_tensor_free().
 * Return: 0; -EBADMSG, -EOPNOTSUPP, -EFBIG, -ENOMEM as rbk_onnx_load(). Any thread.
 */
int rbk_onnx_tensor_load(const char *path, struct rbk_onnx_tensor *ret, struct rbk_error *error);
int rbk_onnx_tensor_load_bytes(const void *bytes, size_t n_bytes, struct rbk_onnx_tensor *ret,
			       struct rbk_error *error);

/*
 * Free what rbk_onnx_tensor_load() or rbk_onnx_tensor_load_bytes() allocated, and zero @tensor.
 * Call once; a zeroed tensor is allowed.
 */
void rbk_onnx_tensor_free(struct rbk_onnx_tensor *tensor);

#ifdef __cplusplus
}
#endif

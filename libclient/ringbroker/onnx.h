#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * ONNX models
 *
 * libringbroker-onnx reads an ONNX file and makes a plan of it, on the client's side: the broker
 * never sees the file. A program loads a model, says what the file leaves open, and has a plan
 * made, which it then runs like any other, with the tensors bound in the order that
 * rbk_onnx_bound() tells:
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
 * What is read: opsets 6 to 25 of the default domain, of earlier ones the operators that have not
 * changed; IR versions 3 and later; weights in the file or beside it. Nodes are brought into the
 * one form in which the broker's catalogue has each operator; what depends on constants alone is
 * computed while compiling. What the catalogue lacks is refused, all of it at once:
 * rbk_onnx_refusal() lists node, operator, opset and reason.
 *
 * Functions. A node that calls a function of the file, by domain, name and overload, is replaced by
 * that function's nodes, of the opsets that the function says; it comes before an operator of the
 * catalogue that has the same name. Functions may call others, up to 128 deep, but not themselves.
 * An If becomes the nodes of one branch, where its condition is known or computed of what is; of
 * control flow, that is all. Sparse weights are made dense, 256 MiB of them at most.
 *
 * Shapes. A leading dimension of the inputs that the file leaves open becomes the task's count.
 * Where nodes compute rows from other rows, such as a mean along that dimension, a task must hold
 * all rows that belong together: see struct rbk_onnx_step. A
 * model whose inputs all have the fixed leading dimension 1 gets one too, if every node provably
 * computes each row from that row alone; else it keeps its shapes. Other open dimensions must be
 * given by rbk_onnx_set_dim(). With max_count 1 every shape is fixed.
 *
 * Values. Some operators need the value of an input to know shapes (the "starts" of Slice). Where
 * such a value comes from an input of the model, that input says value_needed once the model was
 * compiled, and rbk_onnx_set_input() gives it.
 *
 * Numbers are ONNX's, the same on each device within rounding. Float32's denormals (below 1.2e-38)
 * count as zero wherever something is computed: their Sign is 0, and they equal 0; what only moves
 * elements keeps them, as does Cast between float32 and bfloat16, which has the same ones.
 * Float16's are numbers like others; float64's (below 2.2e-308) may count as zero.
 *
 * Types. bfloat16 is bound as it is, two bytes to an element. What computes with it is preceded by
 * casts to float32 and followed by a rounding of each output, so that sums are in float32 and what
 * lies between two nodes is rounded, as the model says; what moves elements takes it as it is.
 * Weights of four bits stay what they are where a product reads them, and become floats, as those
 * of 16 bits do, where anything else does. float64 is computed in double precision, by devices that
 * can: no pattern of nodes is made one operator there. Strings, and integers of other widths than
 * those of enum rbk_dtype, are refused, except in what is computed while compiling.
 *
 * A model file is hostile input: sizes and numbers are bounded, and external data is read from
 * regular files below the model's own folder only. Errors are those of <ringbroker.h>: a negative
 * errno and one sentence, which names what it is about. Functions on one model are called by one
 * thread at a time; different models are independent.
 */
#include <stddef.h>
#include <stdint.h>
#include <ringbroker.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A model. */
struct rbk_onnx;

/* Element types, as ONNX numbers them; where enum rbk_dtype has the type, the same number. */
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
 * "float32"; also of ONNX's types that are not read, such as "string" (8); "unknown" for numbers
 * that ONNX does not have. Static. Any thread.
 */
const char *rbk_onnx_dtype_name(uint32_t dtype);

/* Bytes of @n_elems elements; 0 for other numbers. Any thread. */
uint64_t rbk_onnx_dtype_bytes(uint32_t dtype, uint64_t n_elems);

/* ---- Models ------------------------------------------------------------------------------ */

/*
 * Reads the model at @path; external data is looked for below the folder that it is in.
 * Return: 0 and the model, owned by the caller;
 *   -EBADMSG     it is not an ONNX model, or a broken one: truncated, cyclic, names used twice, a
 *                tensor whose bytes are not those of its shape, data outside of the folder, a
 *                function that calls itself or is not called as it is defined
 *   -EOPNOTSUPP  an opset or IR version that is not read; sequences, maps and sparse tensors as
 *                inputs or outputs
 *   -EFBIG       beyond what is read: 2 GiB of file, 65,536 nodes (with those of branches, and of
 *                functions, as often as they are called), 64 GiB of weights, 2^31-1 in a dimension
 *   -ENOMEM      or another errno of open() and mmap()
 * Operators are not looked at yet: a Loop, say, is refused by rbk_onnx_compile(). Any thread.
 */
int rbk_onnx_load(const char *path, struct rbk_onnx **ret, struct rbk_error *error);

/*
 * The same of @n_bytes in memory, which may be freed afterwards. External data is looked for below
 * @folder; NULL: a model that has any is refused.
 */
int rbk_onnx_load_bytes(const void *bytes, size_t n_bytes, const char *folder,
			struct rbk_onnx **ret, struct rbk_error *error);

/* Plans made of it stay. Return: NULL. */
struct rbk_onnx *rbk_onnx_free(struct rbk_onnx *model);

/*
 * An operator that models may have and the broker's catalogue (rbk_catalogue()) does not: it is
 * made of operators there, or computed in advance.
 */
struct rbk_onnx_operator {
	const char *name; /* of another domain: "com.microsoft.MatMulNBits"; for ever */
	uint32_t since;   /* opset of its domain */
	uint32_t until;   /* the last opset that has it; 0: it still is there */
};

/* The @i-th of them, in no order. Any thread. Return: 0; -EINVAL: there are no more. */
int rbk_onnx_operator(unsigned int i, struct rbk_onnx_operator *ret);

/* What the file says: opset of the default domain, and how many nodes its graph has. */
uint32_t rbk_onnx_opset(const struct rbk_onnx *model);
uint32_t rbk_onnx_n_nodes(const struct rbk_onnx *model);

/* ONNX has no limit, plans have RBK_MAX_RANK. */
#define RBK_ONNX_MAX_RANK 16
#define RBK_ONNX_DIM_OPEN (-1)

/* An input or an output of the model, as the file declares it. Strings live as long as the model.
 */
struct rbk_onnx_value {
	const char *name;     /* ONNX's own, whole; UTF-8 */
	uint32_t dtype;       /* enum rbk_onnx_dtype; an output's may be 0: see rbk_onnx_bound() */
	int32_t rank;         /* -1: the file does not say */
	uint8_t is_optional;  /* an input that has a default value in the file, which is used */
	uint8_t is_set;       /* rbk_onnx_set_input() gave its value */
	uint8_t value_needed; /* once compiled: its value must be known to know shapes */
	uint8_t reserved[5];
	int64_t dims[RBK_ONNX_MAX_RANK];          /* RBK_ONNX_DIM_OPEN where it is open, */
	const char *dim_names[RBK_ONNX_MAX_RANK]; /* and then its name ("batch"), or NULL */
};

/*
 * Inputs, outputs: their number, and the @i-th in the file's order. Those with a default value
 * (weights, in older files) are inputs too: is_optional. Return: 0; -EINVAL: there is no such one.
 */
unsigned int rbk_onnx_n_inputs(const struct rbk_onnx *model);
int rbk_onnx_input(const struct rbk_onnx *model, unsigned int i, struct rbk_onnx_value *ret);
unsigned int rbk_onnx_n_outputs(const struct rbk_onnx *model);
int rbk_onnx_output(const struct rbk_onnx *model, unsigned int i, struct rbk_onnx_value *ret);

/* ---- What the file leaves open ----------------------------------------------------------- */

/*
 * Gives every open dimension of that name a number, as if the file had it; of leading ones too,
 * which are then fixed. Before compiling.
 * Return: 0; -EINVAL: @size is not 0..2^31-1; -ENOENT: no dimension has the name; -ENOMEM.
 */
int rbk_onnx_set_dim(struct rbk_onnx *model, const char *name, int64_t size,
		     struct rbk_error *error);

/*
 * Gives input @name its shape, as if the file had it. A dimension may be RBK_ONNX_DIM_OPEN, to
 * leave it as it is. For an input whose rank the file does not say, or whose dimensions have no
 * name. Return: 0; -EINVAL: it contradicts the file; -ENOENT: there is no such input; -ENOMEM.
 */
int rbk_onnx_set_shape(struct rbk_onnx *model, const char *name, int rank, const int64_t *dims,
		       struct rbk_error *error);

/* A tensor in memory: C order, no gaps. */
struct rbk_onnx_tensor {
	uint32_t dtype; /* enum rbk_onnx_dtype */
	int32_t rank;
	int64_t dims[RBK_ONNX_MAX_RANK];
	const void *data; /* of n_bytes */
	uint64_t n_bytes;
	const char *name; /* "" if it has none */
};

/*
 * Makes input @name a constant with that value, which is copied: it is then not bound by tasks.
 * Again, with @tensor NULL, it is an input as before. Before compiling.
 * Return: 0; -EINVAL: type or shape contradict the file; -ENOENT: there is no such input; -ENOMEM.
 */
int rbk_onnx_set_input(struct rbk_onnx *model, const char *name,
		       const struct rbk_onnx_tensor *tensor, struct rbk_error *error);

/* ---- Compiling --------------------------------------------------------------------------- */

/* Optimisations that rbk_onnx_options.disable turns off; results agree within rounding. */
#define RBK_ONNX_OPT_FOLD    (1u << 0) /* computing float nodes of constants in advance */
#define RBK_ONNX_OPT_NO_OPS  (1u << 1) /* leaving out nodes that change nothing */
#define RBK_ONNX_OPT_DEAD    (1u << 2) /* leaving out nodes whose outputs nobody reads */
#define RBK_ONNX_OPT_SHARE   (1u << 3) /* storing equal constants once */
#define RBK_ONNX_OPT_CONV_BN (1u << 4) /* BatchNormalization in the weights of a Conv before it */
/*
 * Several nodes that together are one operator become it, where nobody reads what lies between:
 * LayerNormalization and RMSNormalization; Gelu, Swish, HardSwish, Mish; an Add behind MatMul,
 * Gemm, Conv and ConvTranspose as the bias of Gemm and those; Attention of two MatMul and a
 * Softmax, whose rows without any key that counts give 0 instead of NaN.
 */
#define RBK_ONNX_OPT_NORM       (1u << 5)
#define RBK_ONNX_OPT_ACTIVATION (1u << 6)
#define RBK_ONNX_OPT_BIAS       (1u << 7)
#define RBK_ONNX_OPT_FUSION     (1u << 8) /* what rbk_builder_disable_fusion() turns off */
#define RBK_ONNX_OPT_ATTENTION  (1u << 9)
#define RBK_ONNX_OPT_ALL        0xffffffffu

/* Zero-initialise it and set size to sizeof(struct rbk_onnx_options); 0 is each one's default. */
struct rbk_onnx_options {
	size_t size;
	uint32_t max_count; /* rows of a task, 1..2^31-1; default 1: all shapes are fixed */
	uint32_t disable;   /* RBK_ONNX_OPT_*: not to be done */
	uint32_t pin;       /* 1 + RBK_DEVICE_*: runs there only; 0: anywhere */
	/*
	 * Only @n_steps steps from @first_step on, as rbk_onnx_step() numbers them: what they read
	 * from others is bound as an input and what they write as an output. To measure them one by
	 * one. Default: all. Only looked at by rbk_onnx_plan().
	 */
	uint32_t first_step;
	uint32_t n_steps;
	uint32_t keep_batch; /* 1: fixed leading dimensions stay fixed */
};

/*
 * Works out what the plan will be: canonical nodes, constants, shapes. Makes no request to a
 * broker. @options may be NULL. May be called again, with other options and other inputs; what the
 * functions below said before is then gone.
 * Return: 0;
 *   -EOPNOTSUPP  see rbk_onnx_refusal(); the sentence has the first, and how many there are
 *   -EINVAL      the options are impossible
 *   -EFBIG       what would be computed now is beyond its bounds
 *   -ENOMEM      there is no memory
 */
int rbk_onnx_compile(struct rbk_onnx *model, const struct rbk_onnx_options *options,
		     struct rbk_error *error);

/*
 * Why the last rbk_onnx_compile() refused the model. One entry per node and reason; strings live
 * until the next one, and are never NULL.
 */
struct rbk_onnx_refusal {
	uint32_t node;      /* in the file's order; UINT32_MAX: it is about the model itself */
	uint32_t opset;     /* of op's domain that is asked for; 0: none */
	const char *name;   /* the node's own, perhaps "", or its first output's; in a function
			     * or a branch "outer/name", where node is the graph's */
	const char *op;     /* "MatMul"; of another domain "com.example.Op"; "" for the model */
	const char *reason; /* a sentence */
};
unsigned int rbk_onnx_n_refusals(const struct rbk_onnx *model);
/* Return: 0; -EINVAL: there is no such one. */
int rbk_onnx_refusal(const struct rbk_onnx *model, unsigned int i, struct rbk_onnx_refusal *ret);

/* A tensor that each task gives, once compiled. */
struct rbk_onnx_bound {
	const char *name; /* ONNX's own, whole; "": it has none; as long as the model */
	uint8_t is_output;
	uint8_t reserved[3];
	uint32_t index; /* as rbk_onnx_input() or rbk_onnx_output() counts; else UINT32_MAX */
	uint32_t dtype; /* enum rbk_onnx_dtype */
	uint32_t rank;  /* 0..RBK_MAX_RANK */
	uint32_t dims[RBK_MAX_RANK]; /* dims[0] is RBK_DIM_COUNT where it follows the count: */
	uint32_t per_count;          /* it is then this times the task's count; else 0 */
	uint32_t tensor;      /* its number: what one step writes and another one reads has one */
	uint64_t bytes_fixed; /* a task of count rows has bytes_fixed + count * bytes_row bytes */
	uint64_t bytes_row;
};

/*
 * The tensors that tasks of the plan bind, in the order of their references: inputs, then outputs.
 * Inputs that nothing reads are not among them; nor are inputs without elements (with a dimension
 * of 0), of which everything is known. An output without elements is, with no bytes: its reference
 * is one to RBK_REF_ALIGN bytes of its own all the same, and what tasks write there says nothing.
 * With first_step, see rbk_onnx_options, they are those of the last rbk_onnx_plan(). Return: 0;
 * -EINVAL: there is no such one.
 */
unsigned int rbk_onnx_n_bound(const struct rbk_onnx *model);
int rbk_onnx_bound(const struct rbk_onnx *model, unsigned int i, struct rbk_onnx_bound *ret);

/* A node of the plan, once compiled. */
struct rbk_onnx_step {
	const char *op; /* the catalogue's operator */
	/* As in a refusal, of the node that it comes from; else "Transpose 3". */
	const char *name;
	uint32_t node; /* which node of the file that is; UINT32_MAX: of none */
	/*
	 * 1: it computes rows of the count from other rows as well, or something of all of them,
	 * such as their mean. What is right then is one task with every row; cut into several
	 * tasks, the model computes something else.
	 */
	uint32_t mixes_rows;
};
unsigned int rbk_onnx_n_steps(const struct rbk_onnx *model);
/* Return: 0; -EINVAL: there is no such one. */
int rbk_onnx_step(const struct rbk_onnx *model, unsigned int i, struct rbk_onnx_step *ret);

/* ---- Plans ------------------------------------------------------------------------------- */

/*
 * Has the broker of @rbk prepare the compiled model: the constants go into one sealed arena, which
 * lives as long as the plan needs it. Where no bound tensor follows the count, the plan's tasks
 * have one row. @options as given to rbk_onnx_compile(), of which pin, first_step and n_steps are
 * looked at; NULL: the ones given there. Return: 0 and the plan, owned by the caller, independent
 * of the model;
 *   -EINVAL  the model is not compiled, or the broker says no; the sentence says why
 *   -ENODEV  there is no such device as pin names, or it cannot run the plan
 *   -E2BIG   more tensors, nodes or bound tensors than a plan can have
 * or as rbk_plan_new(), rbk_arena_new() and rbk_arena_seal().
 */
int rbk_onnx_plan(struct rbk_onnx *model, struct rbk *rbk, const struct rbk_onnx_options *options,
		  struct rbk_plan **ret, struct rbk_error *error);

/* ---- Tensor files ------------------------------------------------------------------------ */

/*
 * Reads a file with one TensorProto, such as "input_0.pb" of ONNX's test data: any encoding, in
 * the file itself. @ret->data and @ret->name live until rbk_onnx_tensor_free().
 * Return: 0; -EBADMSG, -EOPNOTSUPP, -EFBIG, -ENOMEM as rbk_onnx_load(). Any thread.
 */
int rbk_onnx_tensor_load(const char *path, struct rbk_onnx_tensor *ret, struct rbk_error *error);
int rbk_onnx_tensor_load_bytes(const void *bytes, size_t n_bytes, struct rbk_onnx_tensor *ret,
			       struct rbk_error *error);

/* Frees what those two made, and zeroes it; once, or of a zeroed one. */
void rbk_onnx_tensor_free(struct rbk_onnx_tensor *tensor);

#ifdef __cplusplus
}
#endif

#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * A compiled model, in the operators of the catalogue
 *
 * rbk_onnx_compile() makes a graph of steps. Each step is an operator of the catalogue in its
 * canonical form, over tensors of known type and shape. One pass over the model's nodes makes the
 * graph. A node's rule (canon.h) reads the node and emits steps. Emitting infers types and shapes,
 * or computes the result at once if all inputs are known. A node that is not supported is recorded
 * as a refusal. The pass then goes on with unknown tensors, so that all refusals are reported at
 * once.
 */
#include "libclient/onnx/model.h"
#include "shm/operators/op-call.h"

/*
 * Limits of computing while compiling: elements, and bytes in total. The model's own initializers
 * raise both limits by their size, four times for bytes: bfloat16 becomes float32, which may then
 * be moved.
 */
#define GRAPH_MAX_EVAL_ELEMS (1ull << 22)
#define GRAPH_MAX_BYTES      (1ull << 28)
/* Limit of steps, above the number of nodes in the largest supported files. */
#define GRAPH_MAX_STEPS    (1u << 18)
#define GRAPH_MAX_REFUSALS 4096u

/* Return @shape with the leading count of @like. */
static inline struct shape shape_with_count(struct shape shape, const struct shape *like)
{
	shape.dynamic = like->dynamic;
	shape.dims[0] = like->dims[0];
	return shape;
}

struct nibbles;
struct step;

struct tensor {
	const char *name; /* ONNX's; "": no name */
	uint32_t number;  /* unique in the graph */
	bool known;       /* type and shape are known */
	uint8_t dtype;
	struct shape shape;
	const struct constant *constant; /* the elements, if known; else NULL */
	/* original shape of an output without elements; or NULL */
	const struct constant *stands_for;
	struct step *producer;    /* NULL: none */
	uint32_t input;           /* index among the model's inputs, or UINT32_MAX */
	uint32_t output;          /* index among the model's outputs, or UINT32_MAX */
	bool is_needed;           /* the elements must be known */
	bool is_used;             /* read by a step that is used, or an output */
	uint32_t n_uses;          /* reads by steps before fuse(), and as the model's output */
	struct tensor *widened;   /* a bfloat16's elements as float32, or NULL */
	struct tensor *unrounded; /* tensor before its rounding, or NULL; see bfloat.c */
	/* four-bit matrix that this tensor represents, or NULL; see nibbles.c */
	struct nibbles *nibbles;
	/* members used while a plan is made */
	enum { PLACE_NONE, PLACE_SCRATCH, PLACE_CONSTANT, PLACE_BOUND, PLACE_BOUND_OUTPUT } place;
	unsigned int id; /* id in the builder */
};

/* An attribute in the form of plans. */
struct attr {
	const char *name;
	enum rbk_plan_attr_type type;
	unsigned int n;
	union {
		int64_t i;
		float f;
		const int64_t *ints;
		const float *floats;
		const char *string;
	};
};

#define ATTR_INT(key, value) \
	((struct attr){.name = (key), .type = RBK_ATTR_INT, .n = 1, .i = (value)})
#define ATTR_FLOAT(key, value) \
	((struct attr){.name = (key), .type = RBK_ATTR_FLOAT, .n = 1, .f = (value)})
#define ATTR_INTS(key, list, count) \
	((struct attr){.name = (key), .type = RBK_ATTR_INTS, .n = (count), .ints = (list)})
#define ATTR_STRING(key, text)                          \
	((struct attr){.name = (key),                   \
		       .type = RBK_ATTR_STRING,         \
		       .n = (unsigned int)strlen(text), \
		       .string = (text)})

#define STEP_MAX_ATTRS 16

struct step {
	const char *op;
	const char *name;              /* not empty after optimise() */
	const struct op *row;          /* NULL while it may still be computed */
	const struct model_node *node; /* NULL: none */
	unsigned int n_in, n_out, n_attrs;
	struct tensor *in[OP_MAX_INPUTS];   /* NULL: absent */
	struct tensor *out[OP_MAX_OUTPUTS]; /* NULL: absent */
	struct attr attrs[STEP_MAX_ATTRS];
	bool mixes_rows; /* rows of the count are computed from other rows as well */
	bool is_used;
};

struct graph {
	struct rbk_onnx *model;
	struct mem mem;
	struct rbk_onnx_options options;
	uint32_t max_count;
	bool makes_batch; /* leading dimensions of 1 are tried as the count */

	struct tensor **values; /* indexed by the model's value; NULL until defined */
	struct step **steps;
	uint32_t n_steps, n_steps_max;
	struct tensor **outputs; /* the model's */
	struct tensor **needed;  /* tensors for which graph_need() was called */
	uint32_t n_needed, n_needed_max;
	uint32_t n_tensors;
	const char *count_name; /* ONNX's name of the count dimension, or NULL */
	bool keeps_constants;   /* constants are not computed now */
	struct tensor **bound;  /* inputs that are read, then outputs */
	unsigned int n_bound;
	struct tensor **plan_bound; /* those of the last plan, or NULL */
	unsigned int n_plan_bound, n_plan_inputs;

	struct rbk_onnx_refusal *refusals;
	uint32_t n_refusals, n_refusals_max;
	uint64_t n_evaluable;  /* elements that may still be computed */
	int fatal;             /* -ENOMEM, -EFBIG: compiling stops */
	struct tensor nowhere; /* stands in for tensors after a fatal error */

	/* The current node. */
	const struct model_node *node;
	bool *attr_is_read;
	bool is_refused;
	bool computes_bfloat; /* the node reads bfloat16 and computes with it */
	bool selects_bfloat;  /* and commutes with rounding; see bfloat.c */
};

struct graph *graph_free(struct graph *graph);

/*
 * Compile @model into a graph; in pass.c. Return: 0; -EOPNOTSUPP, *ret has the refusals; -ENOMEM,
 * -EFBIG.
 */
int graph_new(struct rbk_onnx *model, const struct rbk_onnx_options *options, struct graph **ret,
	      struct rbk_error *error);

/*
 * Have the broker prepare the graph, or the steps that @options select. Return: as rbk_onnx_plan().
 */
int graph_plan(struct graph *graph, struct rbk *rbk, const struct rbk_onnx_options *options,
	       struct rbk_plan **ret, struct rbk_error *error);

/*
 * Declare the whole graph to a builder, without a broker. Constants get places in @arena, whose
 * memory is not touched. The caller frees *ret.
 * Return: 0; -E2BIG: a plan cannot have so many steps or bound tensors; -ENOMEM.
 */
int graph_declare(struct graph *graph, struct rbk_arena *arena, struct rbk_builder **ret,
		  uint32_t *ret_max_count, struct rbk_error *error);

/* Allocate memory of the graph. On failure set graph->fatal and return NULL. */
void *graph_take(struct graph *graph, uint64_t bytes);
void *graph_zero(struct graph *graph, uint64_t n, uint64_t item_bytes);
/*
 * Return an array of the graph with room for one more item. Growing leaves the old memory unused.
 */
void *graph_grow(struct graph *graph, void *items, uint32_t n, uint32_t *n_max, size_t item_bytes);

/* Record a refusal of the current node, or of the model. */
void graph_refuse(struct graph *graph, const char *format, ...)
	__attribute__((__format__(__printf__, 2, 3)));

/* Return the tensor of the model's value @index, made at the first call. */
struct tensor *graph_value(struct graph *graph, uint32_t index);
/* Record that a refusal requires the elements of @tensor to be known. */
void graph_need(struct graph *graph, struct tensor *tensor);

/* Return an unknown tensor, after a refusal. */
struct tensor *graph_unknown(struct graph *graph);
/* Return a tensor of known elements, which are not copied. */
struct tensor *graph_constant(struct graph *graph, const struct constant *constant);
/* Return a scalar tensor with a copy of @value. */
struct tensor *graph_scalar(struct graph *graph, uint32_t dtype, double value);
/* Return a tensor without elements, of a fixed shape. */
struct tensor *graph_nothing(struct graph *graph, uint32_t dtype, const struct shape *shape);

/* Return true if @shape is fixed and has no elements. */
static inline bool shape_is_empty(const struct shape *shape)
{
	bool is_empty = false;

	for (unsigned int i = 0; i < shape->rank; i++)
		is_empty |= shape->dims[i] == 0;
	return is_empty && !shape->dynamic;
}

struct tensor *graph_ints(struct graph *graph, const int64_t *values, unsigned int n);

/*
 * Add a step, or compute it if all inputs are constants. @out receives @n_out tensors, unknown ones
 * after a refusal.
 */
void graph_emit(struct graph *graph, const char *op, struct tensor *const *in, unsigned int n_in,
		struct tensor **out, unsigned int n_out, const struct attr *attrs,
		unsigned int n_attrs);

/* Emit a step with one output. */
struct tensor *graph_emit_1(struct graph *graph, const char *op, struct tensor *const *in,
			    unsigned int n_in, const struct attr *attrs, unsigned int n_attrs);

/* Add an existing step unchanged. */
void graph_add_step(struct graph *graph, struct step *step);

/* ---- eval.c, eval-number.c ---- */

enum { EVAL_E_UNKNOWN = 1 };

/*
 * Compute a step of constant inputs into constants. The tensors of step->out exist, without
 * contents.
 * Return: 0; EVAL_E_UNKNOWN: the step is not supported, or too large; -errno.
 */
int eval_step(struct graph *graph, struct step *step);

/* Store or load element @i of an array of @dtype; storing rounds or wraps around to the type. */
void eval_store(uint32_t dtype, void *data, uint64_t i, double value);
double eval_load(uint32_t dtype, const void *data, uint64_t i);

bool eval_is_float(uint32_t dtype);

/* ---- optimise.c ---- */

/*
 * Fuse steps, remove steps whose outputs are not read, and determine the bound tensors. Call after
 * the last step.
 */
void optimise(struct graph *graph);

/* ---- fuse.c ---- */

/* Replace groups of steps by one step each. The replaced steps remain, unread. */
void fuse(struct graph *graph);

/* ---- names.c ---- */

/*
 * Names for a plan: printable ASCII below RBK_NAME_BYTES, distinct. Short, printable names are
 * kept.
 */
struct names;
struct names *names_new(void);
struct names *names_free(struct names *names);
/* Make a distinct name. Return: 0; -E2BIG: too many names. */
int names_make(struct names *names, const char *full, char ret[RBK_NAME_BYTES]);

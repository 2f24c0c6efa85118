#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * A model as the catalogue has it
 *
 * What rbk_onnx_compile() makes: steps, each an operator of the catalogue in its canonical form,
 * over tensors whose type and shape are known. It is made in one pass over the model's nodes: a
 * node's rule (canon.h) reads the node and emits steps, and emitting infers types and shapes, or
 * computes the result at once where all inputs are known. What cannot be done is written down as a
 * refusal and the pass goes on, with tensors of which nothing is known, so that all refusals come
 * at once.
 */
#include "libclient/onnx/model.h"
#include "shm/operators/op-call.h"

/*
 * What may be computed while compiling: elements, and bytes of everything; and beside that, as much
 * as the model's own initializers have, four times over for bytes: bfloat16 becomes float32, and
 * that may be moved.
 */
#define GRAPH_MAX_EVAL_ELEMS (1ull << 22)
#define GRAPH_MAX_BYTES      (1ull << 28)
/* Files of the largest size that is read make fewer nodes than this. */
#define GRAPH_MAX_STEPS    (1u << 18)
#define GRAPH_MAX_REFUSALS 4096u

/* @shape leading with the count as @like does. */
static inline struct shape shape_with_count(struct shape shape, const struct shape *like)
{
	shape.dynamic = like->dynamic;
	shape.dims[0] = like->dims[0];
	return shape;
}

struct nibbles;
struct step;

struct tensor {
	const char *name; /* ONNX's; "" if nobody named it */
	uint32_t number;  /* no other one's */
	bool known;       /* type and shape are */
	uint8_t dtype;
	struct shape shape;
	const struct constant *constant;   /* its elements, where they are known */
	const struct constant *stands_for; /* an output without elements: what it is; or NULL */
	struct step *producer;             /* or NULL */
	uint32_t input;                    /* index among the model's inputs, or UINT32_MAX */
	uint32_t output;                   /* and outputs */
	bool is_needed;                    /* somebody needs its elements */
	bool is_used;                      /* by a step that is */
	uint32_t n_uses;                   /* by steps before fuse(), and as the model's output */
	struct tensor *widened;            /* a bfloat16's: the same elements as float32, or NULL */
	struct tensor *unrounded;          /* what they were rounded from, or NULL; see bfloat.c */
	struct nibbles *nibbles;           /* it stands for those, or NULL; see nibbles.c */
	/* While a plan is made: */
	enum { PLACE_NONE, PLACE_SCRATCH, PLACE_CONSTANT, PLACE_BOUND, PLACE_BOUND_OUTPUT } place;
	unsigned int id; /* in the builder */
};

/* An attribute as plans have them. */
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
#define ATTR_FLOATS(key, list, count) \
	((struct attr){.name = (key), .type = RBK_ATTR_FLOATS, .n = (count), .floats = (list)})
#define ATTR_STRING(key, text)                          \
	((struct attr){.name = (key),                   \
		       .type = RBK_ATTR_STRING,         \
		       .n = (unsigned int)strlen(text), \
		       .string = (text)})

#define STEP_MAX_ATTRS 16

struct step {
	const char *op;
	const char *name;              /* after optimise(): not empty */
	const struct op *row;          /* NULL while it may yet be computed */
	const struct model_node *node; /* or NULL */
	unsigned int n_in, n_out, n_attrs;
	struct tensor *in[OP_MAX_INPUTS];   /* NULL: absent */
	struct tensor *out[OP_MAX_OUTPUTS]; /* NULL: absent */
	struct attr attrs[STEP_MAX_ATTRS];
	bool mixes_rows; /* rows of the count are computed from others as well */
	bool is_used;
};

struct graph {
	struct rbk_onnx *model;
	struct mem mem;
	struct rbk_onnx_options options;
	uint32_t max_count;
	bool makes_batch; /* leading dimensions of 1 are tried as the count */

	struct tensor **values; /* by the model's value; NULL until defined */
	struct step **steps;
	uint32_t n_steps, n_steps_max;
	struct tensor **outputs; /* the model's */
	struct tensor **needed;  /* those that graph_need() was called for */
	uint32_t n_needed, n_needed_max;
	uint32_t n_tensors;
	const char *count_name; /* of the dimension that is the count, if it has one */
	bool keeps_constants;   /* nothing is computed now */
	struct tensor **bound;  /* inputs that are read, then outputs */
	unsigned int n_bound;
	struct tensor **plan_bound; /* those of the last plan, or NULL */
	unsigned int n_plan_bound, n_plan_inputs;

	struct rbk_onnx_refusal *refusals;
	uint32_t n_refusals, n_refusals_max;
	uint64_t n_evaluable;  /* elements that may yet be computed */
	int fatal;             /* -ENOMEM, -EFBIG: nothing goes on */
	struct tensor nowhere; /* stands in then */

	/* The node that is being read. */
	const struct model_node *node;
	bool *attr_is_read;
	bool is_refused;
	bool computes_bfloat; /* it reads bfloat16 and does not only move it */
	bool selects_bfloat;  /* and that is the same before rounding and behind; see bfloat.c */
};

struct graph *graph_free(struct graph *graph);

/* pass.c: makes the graph of @model. Return: 0; -EOPNOTSUPP, *ret has the refusals; -ENOMEM,
 * -EFBIG. */
int graph_new(struct rbk_onnx *model, const struct rbk_onnx_options *options, struct graph **ret,
	      struct rbk_error *error);

/* Has the broker prepare it, or the steps that @options say. Return: as rbk_onnx_plan(). */
int graph_plan(struct graph *graph, struct rbk *rbk, const struct rbk_onnx_options *options,
	       struct rbk_plan **ret, struct rbk_error *error);

/* Memory of the graph; without any, graph->fatal. */
void *graph_take(struct graph *graph, uint64_t bytes);
void *graph_zero(struct graph *graph, uint64_t n, uint64_t item_bytes);
/* An array in it with room for one more; a grown one leaves its old place unused. */
void *graph_grow(struct graph *graph, void *items, uint32_t n, uint32_t *n_max, size_t item_bytes);

/* Writes down that the current node, or the model, cannot be had. */
void graph_refuse(struct graph *graph, const char *format, ...)
	__attribute__((__format__(__printf__, 2, 3)));

/* The model's value of that index, which comes into being with this. */
struct tensor *graph_value(struct graph *graph, uint32_t index);
/* A refusal is about the elements of @tensor: they must be known. */
void graph_need(struct graph *graph, struct tensor *tensor);

/* A tensor of which nothing is known, after a refusal. */
struct tensor *graph_unknown(struct graph *graph);
/* One of known elements, which stay where they are. */
struct tensor *graph_constant(struct graph *graph, const struct constant *constant);
/* A small one, elements copied. */
struct tensor *graph_scalar(struct graph *graph, uint32_t dtype, double value);
/* One without elements, of a fixed shape. */
struct tensor *graph_nothing(struct graph *graph, uint32_t dtype, const struct shape *shape);

/* Does a fixed shape have no elements? */
static inline bool shape_is_empty(const struct shape *shape)
{
	bool is_empty = false;

	for (unsigned int i = 0; i < shape->rank; i++)
		is_empty |= shape->dims[i] == 0;
	return is_empty && !shape->dynamic;
}

struct tensor *graph_ints(struct graph *graph, const int64_t *values, unsigned int n);

/*
 * Adds a step, or computes it if all inputs are constants. @out are filled in: @n_out tensors,
 * unknown ones after a refusal; bit i of @absent: that one is not wanted and becomes NULL.
 */
void graph_emit(struct graph *graph, const char *op, struct tensor *const *in, unsigned int n_in,
		struct tensor **out, unsigned int n_out, uint32_t absent, const struct attr *attrs,
		unsigned int n_attrs);

/* graph_emit() of one output. */
struct tensor *graph_emit_1(struct graph *graph, const char *op, struct tensor *const *in,
			    unsigned int n_in, const struct attr *attrs, unsigned int n_attrs);

/* Adds a step that is there, as it is. */
void graph_add_step(struct graph *graph, struct step *step);

/* ---- eval.c, eval-number.c ---- */

enum { EVAL_E_UNKNOWN = 1 };

/*
 * Computes a step of constant inputs into constants. step->out are there, without contents.
 * Return: 0; EVAL_E_UNKNOWN: it cannot, or should not because of its size; -errno.
 */
int eval_step(struct graph *graph, struct step *step);

/* Element @i of an array of @dtype; rounded, or wrapped, to what the type can hold. */
void eval_store(uint32_t dtype, void *data, uint64_t i, double value);
double eval_load(uint32_t dtype, const void *data, uint64_t i);

bool eval_is_float(uint32_t dtype);

/* ---- optimise.c ---- */

/* Fuses steps, drops what nobody reads and finds out what is bound, once all steps are there. */
void optimise(struct graph *graph);

/* ---- fuse.c ---- */

/* Puts one step in the place of several, which are left for nobody to read. */
void fuse(struct graph *graph);

/* ---- names.c ---- */

/*
 * Names for a plan: printable ASCII below RBK_NAME_BYTES, distinct. Short, plain ones stay.
 */
struct names;
struct names *names_new(void);
struct names *names_free(struct names *names);
/* Return: 0; -ENOMEM. */
int names_make(struct names *names, const char *full, char ret[RBK_NAME_BYTES]);

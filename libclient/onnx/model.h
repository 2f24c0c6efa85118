#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * A model as its file has it
 *
 * struct rbk_onnx: what was unpacked, with names resolved to values and nodes in an order in which
 * they can run. Nothing here depends on the catalogue, on options or on what the caller set; that
 * is struct graph (graph.h), which is made of it by every rbk_onnx_compile().
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "libclient/onnx/mem.h"
#include "libclient/ringbroker/onnx.h"
#include "onnx.pb-c.h"

#define ONNX_EXPORT           __attribute__((__visibility__("default")))

#define ONNX_MAX_FILE_BYTES   (2ull << 30)
#define ONNX_MAX_WEIGHT_BYTES (64ull << 30)
#define ONNX_MAX_NODES        65536u
#define ONNX_MAX_VALUES       (1u << 20)
#define ONNX_MIN_OPSET        6
#define ONNX_MAX_OPSET        25
#define ONNX_NO_NODE          UINT32_MAX
#define ONNX_NO_VALUE         (UINT32_MAX - 1)

/*
 * Writes a sentence into @error, if it is not NULL. Bytes that are not printable ASCII become '?':
 * names in it are the file's. Return: @r.
 */
int onnx_error(struct rbk_error *error, int r, const char *format, ...)
	__attribute__((__format__(__printf__, 3, 4)));

/* For "%u input%s" in such a sentence. */
static inline const char *onnx_plural(uint64_t n)
{
	return n == 1 ? "" : "s";
}

/* ---- constant.c ---- */

/*
 * A tensor whose elements are known. Where rows is there (int64 only), the i-th element is not
 * data[i] but data[i] + rows[i] * count: shapes that are computed with have such values.
 */
struct constant {
	uint32_t dtype; /* enum rbk_onnx_dtype */
	uint32_t rank;
	int64_t dims[RBK_ONNX_MAX_RANK];
	uint64_t n_elems;
	uint64_t n_bytes;
	const void *data; /* aligned to its element */
	const int64_t *rows;
};

/* Of one element; 0 of unknown types, and of those with two to a byte. */
unsigned int onnx_dtype_size(uint32_t dtype);

/* Fills in n_elems and n_bytes. Return: false if there are more than ONNX_MAX_WEIGHT_BYTES. */
bool constant_measure(struct constant *constant);

/* ---- external.c ---- */

struct external_file;

/* The folder that external data is below, and the files of it that are mapped. */
struct external {
	int folder; /* -1: there is none */
	unsigned int n_files;
	struct external_file *files;
};

void external_deinit(struct external *external);

/*
 * Maps the file that @proto's external_data names, once, and returns the place of its bytes, which
 * lives as long as @external. Return: 0; -EBADMSG; an errno of open(); -ENOMEM.
 */
int external_find(struct external *external, struct mem *mem, const Onnx__TensorProto *proto,
		  uint64_t n_bytes, const void **ret, struct rbk_error *error);

/*
 * Decodes a tensor. What it points to lives in @proto, @mem or @external, which may be NULL: then
 * external data is refused. @what is for the sentence: "initializer", say.
 * Return: 0; -EBADMSG, -EOPNOTSUPP, -EFBIG, -ENOMEM or as external_find().
 */
int constant_decode(struct mem *mem, struct external *external, const Onnx__TensorProto *proto,
		    const char *what, struct constant *ret, struct rbk_error *error);

/* Dimensions, each of which is checked, and what they make. @name is the tensor's. */
int constant_set_shape(struct constant *constant, const int64_t *dims, size_t n_dims,
		       const char *what, const char *name, struct rbk_error *error);

/* ---- sparse.c ---- */

/* constant_decode() of a sparse tensor, which becomes a dense one in @mem. */
int sparse_decode(struct mem *mem, struct external *external, const Onnx__SparseTensorProto *proto,
		  const char *what, struct constant *ret, struct rbk_error *error);

/* ---- unpack.c ---- */

/*
 * Unpacks @bytes as @descriptor after scan_message(). What it takes comes out of @mem.
 * Return: 0; -EBADMSG, -EFBIG, -ENOMEM.
 */
int onnx_unpack(struct mem *mem, const ProtobufCMessageDescriptor *descriptor, const void *bytes,
		size_t n_bytes, ProtobufCMessage **ret, struct rbk_error *error);

/* ---- parse.c ---- */

/* Maps a regular file. Return: 0; -EFBIG, or an errno of open(), fstat() and mmap(). */
int onnx_map_file(const char *path, const void **ret_bytes, size_t *ret_n_bytes,
		  struct rbk_error *error);

/* ---- kind.c ---- */

/* Says what @bytes are, which are no model, in @error; nothing if that is not known. Return: @r. */
int kind_explain(const void *bytes, size_t n_bytes, int r, struct rbk_error *error);

/* ---- model.c ---- */

struct model_value {
	const char *name;
	uint32_t producer;                  /* index of the node in its list; ONNX_NO_NODE */
	uint32_t list;                      /* of which list of nodes that is */
	const Onnx__ValueInfoProto *info;   /* as an input or output; else NULL */
	const struct constant *initializer; /* or NULL */
	uint32_t n_uses;                    /* by nodes, and as an output */
	bool is_input;
};

#define ONNX_ABSENT UINT32_MAX /* a node's input or output that is not there */

struct function;

/* What a node is in that is not in the graph itself. */
struct model_frame {
	const struct model_frame *outer;
	const char *body;                /* function "my.f", then_branch; for sentences */
	const Onnx__NodeProto *proto;    /* the node in whose place it is, */
	const char *name;                /* its name, with those of what it is in itself, */
	uint32_t index;                  /* that of the graph's node, */
	uint32_t place;                  /* and its own, in its body */
	const struct function *function; /* NULL: a branch */
	uint32_t depth;
};

struct model_node {
	const Onnx__NodeProto *proto;
	const char *name;   /* "", or the file's; of one in a function or branch "outer/name" */
	const char *domain; /* "" is the default one, also if spelled "ai.onnx" */
	uint32_t opset;     /* of the domain; 0: the model does not import it */
	uint32_t index;     /* in the file; of one in a body that of the graph's node */
	uint32_t place;     /* in the body that it is in */
	const struct model_frame *frame;
	uint32_t n_in, n_out;
	uint32_t n_reads;   /* of @in: inputs, then what branches read of what is around them */
	uint32_t *in, *out; /* values, or ONNX_ABSENT */
	const struct model_branch *branches; /* of an If: then, else; or NULL */
};

struct model_branch {
	uint32_t n_nodes;
	struct model_node *nodes; /* each after those whose outputs it reads */
	uint32_t *outputs;        /* values, as many as the If has */
};

/* What the caller gave for an input. */
struct model_input {
	uint32_t value;
	uint32_t dtype;
	int32_t rank; /* -1: unknown */
	int64_t dims[RBK_ONNX_MAX_RANK];
	const char *dim_names[RBK_ONNX_MAX_RANK];
	struct constant *set; /* rbk_onnx_set_input(), in memory of its own; or NULL */
	bool value_needed;
};

struct graph;

struct rbk_onnx {
	struct mem mem;
	struct external external;
	const Onnx__ModelProto *proto;
	uint32_t opset;
	uint64_t n_weight_bytes;

	uint32_t n_values;
	struct model_value *values;
	uint32_t n_nodes;
	struct model_node *nodes; /* each after those whose outputs it reads */
	uint32_t n_inputs;
	struct model_input *inputs;
	uint32_t n_outputs;
	struct model_input *outputs; /* as declared */

	struct graph *graph; /* the last rbk_onnx_compile(), or NULL */
};

/* Resolves the names of model->proto, which was unpacked. Return: 0; -EBADMSG, ... */
int model_resolve(struct rbk_onnx *model, struct rbk_error *error);

#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * A model as its file declares it
 *
 * struct rbk_onnx holds the unpacked file, with names resolved to values and nodes in an order in
 * which they can run. It does not depend on the catalogue or on options. Every rbk_onnx_compile()
 * derives a struct graph (graph.h) from it.
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
 * Write a sentence into @error, if it is not NULL. Bytes that are not printable ASCII become '?',
 * because the sentence may contain names from the file. Return: @r.
 */
int onnx_error(struct rbk_error *error, int r, const char *format, ...)
	__attribute__((__format__(__printf__, 3, 4)));

/* Return the plural ending for "%u input%s" in such a sentence. */
static inline const char *onnx_plural(uint64_t n)
{
	return n == 1 ? "" : "s";
}

/* ---- constant.c ---- */

/*
 * A tensor with known elements. If rows is not NULL (int64 only), element i is data[i] + rows[i] *
 * count: computations on shapes produce such values.
 */
struct constant {
	uint32_t dtype; /* enum rbk_onnx_dtype */
	uint32_t rank;
	int64_t dims[RBK_ONNX_MAX_RANK];
	uint64_t n_elems;
	uint64_t n_bytes;
	const void *data; /* aligned to the size of an element */
	const int64_t *rows;
};

/*
 * Return the bytes of one element; 0 for unknown types, and for types with two elements per byte.
 */
unsigned int onnx_dtype_size(uint32_t dtype);

/* Compute n_elems and n_bytes. Return: false if they exceed ONNX_MAX_WEIGHT_BYTES. */
bool constant_measure(struct constant *constant);

/* ---- external.c ---- */

struct external_file;

/* The folder below which external data lies, and its mapped files. */
struct external {
	int folder; /* descriptor of the folder; -1: none */
	unsigned int n_files;
	struct external_file *files;
};

void external_deinit(struct external *external);

/*
 * Map the file that @proto's external_data names, once, and return the address of its bytes, which
 * lives as long as @external. Return: 0; -EBADMSG; an errno of open(); -ENOMEM.
 */
int external_find(struct external *external, struct mem *mem, const Onnx__TensorProto *proto,
		  uint64_t n_bytes, const void **ret, struct rbk_error *error);

/*
 * Decode a tensor. Its pointers refer to memory of @proto, @mem or @external. @external may be
 * NULL: external data is then refused. @what names the tensor's role in sentences, such as
 * "initializer".
 * Return: 0; -EBADMSG, -EOPNOTSUPP, -EFBIG, -ENOMEM or as external_find().
 */
int constant_decode(struct mem *mem, struct external *external, const Onnx__TensorProto *proto,
		    const char *what, struct constant *ret, struct rbk_error *error);

/* Set the dimensions after checking each, and the sizes. @name is the tensor's. */
int constant_set_shape(struct constant *constant, const int64_t *dims, size_t n_dims,
		       const char *what, const char *name, struct rbk_error *error);

/* ---- sparse.c ---- */

/* Decode a sparse tensor as constant_decode() does, into a dense one in @mem. */
int sparse_decode(struct mem *mem, struct external *external, const Onnx__SparseTensorProto *proto,
		  const char *what, struct constant *ret, struct rbk_error *error);

/* ---- unpack.c ---- */

/*
 * Unpack @bytes as a message of @descriptor, after scan_message(), into memory of @mem.
 * Return: 0; -EBADMSG, -EFBIG, -ENOMEM.
 */
int onnx_unpack(struct mem *mem, const ProtobufCMessageDescriptor *descriptor, const void *bytes,
		size_t n_bytes, ProtobufCMessage **ret, struct rbk_error *error);

/* ---- parse.c ---- */

/*
 * Map a regular file. Return: 0; -EBADMSG: it is not a regular file; -EFBIG, or an errno of open(),
 * fstat() and mmap().
 */
int onnx_map_file(const char *path, const void **ret_bytes, size_t *ret_n_bytes,
		  struct rbk_error *error);

/* ---- kind.c ---- */

/*
 * Write into @error which kind of file @bytes are instead of a model, if it is known. Return: @r.
 */
int kind_explain(const void *bytes, size_t n_bytes, int r, struct rbk_error *error);

/* ---- model.c ---- */

struct model_value {
	const char *name;
	uint32_t producer;                  /* index of the node in its list; ONNX_NO_NODE */
	uint32_t list;                      /* id of that list of nodes */
	const struct constant *initializer; /* NULL: none */
	uint32_t n_uses;                    /* number of reads by nodes, and as an output */
	bool is_input;
};

#define ONNX_ABSENT UINT32_MAX /* an absent input or output of a node */

struct function;

/* The body that a node lies in, if it is not in the graph itself. */
struct model_frame {
	const struct model_frame *outer;
	const char *body;                /* function "my.f", or then_branch; for sentences */
	const Onnx__NodeProto *proto;    /* the node that the body replaces */
	const char *name;                /* its name, after the names of its own frames */
	uint32_t index;                  /* index of the graph's node */
	uint32_t place;                  /* its own index in its body */
	const struct function *function; /* NULL: a branch */
	uint32_t depth;
};

struct model_node {
	const Onnx__NodeProto *proto;
	const char *name;   /* "", or the file's name; in a function or branch "outer/name" */
	const char *domain; /* "" is the default domain, also if spelled "ai.onnx" */
	uint32_t opset;     /* version of the domain; 0: the model does not import it */
	uint32_t index;     /* index in the file; in a body that of the graph's node */
	uint32_t place;     /* index in the node's own body */
	const struct model_frame *frame;
	uint32_t n_in, n_out;
	uint32_t n_reads;   /* length of in: inputs, then values that branches capture */
	uint32_t *in, *out; /* values, or ONNX_ABSENT */
	const struct model_branch *branches; /* of an If: then and else; or NULL */
};

struct model_branch {
	uint32_t n_nodes;
	struct model_node *nodes; /* each after the nodes whose outputs it reads */
	uint32_t *outputs;        /* values, as many as the If has outputs */
};

/* A declared input or output, with the values that the caller set. */
struct model_input {
	uint32_t value;
	uint32_t dtype;
	int32_t rank; /* -1: unknown */
	int64_t dims[RBK_ONNX_MAX_RANK];
	const char *dim_names[RBK_ONNX_MAX_RANK];
	struct constant *set; /* from rbk_onnx_set_input(), in its own memory; or NULL */
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
	struct model_node *nodes; /* each after the nodes whose outputs it reads */
	uint32_t n_inputs;
	struct model_input *inputs;
	uint32_t n_outputs;
	struct model_input *outputs; /* as declared */

	struct graph *graph; /* from the last rbk_onnx_compile(), or NULL */
};

/* Resolve the names of the unpacked model->proto. Return: 0; -EBADMSG, ... */
int model_resolve(struct rbk_onnx *model, struct rbk_error *error);

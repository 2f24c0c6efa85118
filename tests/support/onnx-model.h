#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Small ONNX models for tests, made in memory
 *
 *	struct onnx_model model;
 *
 *	onnx_model_init(&model, 13);
 *	onnx_model_input(&model, "x", RBK_ONNX_F32, 2, (int64_t[]){-1, 4});
 *	onnx_model_node(&model, "Relu", "x", "y");
 *	onnx_model_output(&model, "y");
 *	bytes = onnx_model_pack(&model, &n_bytes);
 *	onnx_model_deinit(&model);
 */
#include "libclient/onnx/mem.h"
#include "onnx.pb-c.h"

struct onnx_model {
	struct mem mem;
	Onnx__ModelProto proto;
	Onnx__GraphProto graph;
	Onnx__OperatorSetIdProto opset;
	Onnx__OperatorSetIdProto *opsets[1];
};

void onnx_model_init(struct onnx_model *model, int64_t opset);
void onnx_model_deinit(struct onnx_model *model);

/*
 * Add an input. Dimension -1 is the open dimension "N", -2 the open dimension "M", -3 an open
 * dimension without a name.
 */
Onnx__ValueInfoProto *onnx_model_input(struct onnx_model *model, const char *name, int dtype,
				       unsigned int rank, const int64_t *dims);
Onnx__ValueInfoProto *onnx_model_output(struct onnx_model *model, const char *name);

/* Make a tensor whose data are raw bytes. */
Onnx__TensorProto *onnx_model_tensor(struct onnx_model *model, const char *name, int dtype,
				     unsigned int rank, const int64_t *dims, const void *data,
				     size_t n_bytes);
/* Do as onnx_model_tensor(), and add the tensor as an initializer. */
Onnx__TensorProto *onnx_model_constant(struct onnx_model *model, const char *name, int dtype,
				       unsigned int rank, const int64_t *dims, const void *data,
				       size_t n_bytes);
/* Add a list of int64 as an initializer. */
Onnx__TensorProto *onnx_model_ints(struct onnx_model *model, const char *name, unsigned int n,
				   const int64_t *values);

/* Add a node. Names are separated by one space; "-" is an absent input or output. */
Onnx__NodeProto *onnx_model_node(struct onnx_model *model, const char *op, const char *inputs,
				 const char *outputs);

Onnx__AttributeProto *onnx_model_attr(struct onnx_model *model, Onnx__NodeProto *node,
				      const char *name);
void onnx_model_attr_int(struct onnx_model *model, Onnx__NodeProto *node, const char *name,
			 int64_t value);
void onnx_model_attr_float(struct onnx_model *model, Onnx__NodeProto *node, const char *name,
			   float value);
void onnx_model_attr_ints(struct onnx_model *model, Onnx__NodeProto *node, const char *name,
			  unsigned int n, const int64_t *values);
void onnx_model_attr_string(struct onnx_model *model, Onnx__NodeProto *node, const char *name,
			    const char *value);

/* Set attribute @name of @node to a new graph without nodes. */
Onnx__GraphProto *onnx_model_branch(struct onnx_model *model, Onnx__NodeProto *node,
				    const char *name);
Onnx__NodeProto *onnx_model_graph_node(struct onnx_model *model, Onnx__GraphProto *graph,
				       const char *op, const char *inputs, const char *outputs);
Onnx__ValueInfoProto *onnx_model_graph_output(struct onnx_model *model, Onnx__GraphProto *graph,
					      const char *name);

/*
 * Add a function of @domain and import the domain; the function's nodes are of the default domain's
 * @opset.
 */
Onnx__FunctionProto *onnx_model_function(struct onnx_model *model, const char *domain,
					 const char *name, const char *inputs, const char *outputs,
					 int64_t opset);
Onnx__NodeProto *onnx_model_function_node(struct onnx_model *model, Onnx__FunctionProto *function,
					  const char *op, const char *inputs, const char *outputs);
/* Add an attribute without a default. */
void onnx_model_function_attr(struct onnx_model *model, Onnx__FunctionProto *function,
			      const char *name);
/* Add an attribute with the default @attr, which onnx_model_attr() made on any node. */
void onnx_model_function_default(struct onnx_model *model, Onnx__FunctionProto *function,
				 const Onnx__AttributeProto *attr);
/* Set the overload of a function, or of a node that calls one. */
void onnx_model_function_overload(struct onnx_model *model, Onnx__FunctionProto *function,
				  const char *overload);
void onnx_model_overload(struct onnx_model *model, Onnx__NodeProto *node, const char *overload);
/* Set the domain of @node, which calls a function or is an operator of that domain. */
Onnx__NodeProto *onnx_model_domain(struct onnx_model *model, Onnx__NodeProto *node,
				   const char *domain);
/* Import opset 1 of @domain. */
void onnx_model_import(struct onnx_model *model, const char *domain);
/* Bind attribute @name of @node to the function's attribute @from. */
void onnx_model_attr_ref(struct onnx_model *model, Onnx__NodeProto *node, const char *name,
			 const char *from);

/*
 * Serialize the model.
 * Return: the file's bytes, valid as long as @model.
 */
const uint8_t *onnx_model_pack(struct onnx_model *model, size_t *ret_n_bytes);

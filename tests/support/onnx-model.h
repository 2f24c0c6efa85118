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

/* -1 is an open dimension called "N", -2 one called "M", -3 one without a name. */
Onnx__ValueInfoProto *onnx_model_input(struct onnx_model *model, const char *name, int dtype,
				       unsigned int rank, const int64_t *dims);
Onnx__ValueInfoProto *onnx_model_output(struct onnx_model *model, const char *name);

/* Data as raw bytes. */
Onnx__TensorProto *onnx_model_tensor(struct onnx_model *model, const char *name, int dtype,
				     unsigned int rank, const int64_t *dims, const void *data,
				     size_t n_bytes);
/* onnx_model_tensor() as an initializer. */
Onnx__TensorProto *onnx_model_constant(struct onnx_model *model, const char *name, int dtype,
				       unsigned int rank, const int64_t *dims, const void *data,
				       size_t n_bytes);
/* A list of int64, as an initializer. */
Onnx__TensorProto *onnx_model_ints(struct onnx_model *model, const char *name, unsigned int n,
				   const int64_t *values);

/* Names are separated by one space; "-" is an absent one. */
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

/* Attribute @name of @node is a graph, without nodes at first. */
Onnx__GraphProto *onnx_model_branch(struct onnx_model *model, Onnx__NodeProto *node,
				    const char *name);
Onnx__NodeProto *onnx_model_graph_node(struct onnx_model *model, Onnx__GraphProto *graph,
				       const char *op, const char *inputs, const char *outputs);
Onnx__ValueInfoProto *onnx_model_graph_output(struct onnx_model *model, Onnx__GraphProto *graph,
					      const char *name);

/* A function of @domain, which is imported; its nodes are of the default domain's @opset. */
Onnx__FunctionProto *onnx_model_function(struct onnx_model *model, const char *domain,
					 const char *name, const char *inputs, const char *outputs,
					 int64_t opset);
Onnx__NodeProto *onnx_model_function_node(struct onnx_model *model, Onnx__FunctionProto *function,
					  const char *op, const char *inputs, const char *outputs);
/* An attribute without a default. */
void onnx_model_function_attr(struct onnx_model *model, Onnx__FunctionProto *function,
			      const char *name);
/* One with a default, which is @attr: onnx_model_attr() of whatever node. */
void onnx_model_function_default(struct onnx_model *model, Onnx__FunctionProto *function,
				 const Onnx__AttributeProto *attr);
/* Of a function, or of a node that calls it. */
void onnx_model_function_overload(struct onnx_model *model, Onnx__FunctionProto *function,
				  const char *overload);
void onnx_model_overload(struct onnx_model *model, Onnx__NodeProto *node, const char *overload);
/* @node calls a function, or is an operator of that domain. */
Onnx__NodeProto *onnx_model_domain(struct onnx_model *model, Onnx__NodeProto *node,
				   const char *domain);
/* Opset 1 of that domain is used. */
void onnx_model_import(struct onnx_model *model, const char *domain);
/* Attribute @name of @node is the function's @from. */
void onnx_model_attr_ref(struct onnx_model *model, Onnx__NodeProto *node, const char *name,
			 const char *from);

/* The file, as long as @model. */
const uint8_t *onnx_model_pack(struct onnx_model *model, size_t *ret_n_bytes);

/* SPDX-License-Identifier: MIT */
/*
 * Small ONNX models for tests, made in memory
 *
 * The model consists of protobuf-c's own structures; their lists grow one item at a time, in the
 * model's memory.
 */
#undef NDEBUG
#include <assert.h>
#include <string.h>

#include "support/onnx-model.h"

static void *take(struct onnx_model *model, size_t bytes)
{
	void *place = mem_zero(&model->mem, 1, bytes);

	assert(place);
	return place;
}

static char *copy(struct onnx_model *model, const char *text)
{
	char *place = mem_string(&model->mem, text);

	assert(place);
	return place;
}

static void append(struct onnx_model *model, size_t *n, void *list, void *item)
{
	void **items = take(model, (*n + 1) * sizeof(*items));

	if (*n > 0)
		memcpy(items, *(void ***)list, *n * sizeof(*items));
	items[(*n)++] = item;
	*(void ***)list = items;
}

void onnx_model_init(struct onnx_model *model, int64_t opset)
{
	memset(model, 0, sizeof(*model));
	mem_init(&model->mem, 1 << 30);
	onnx__model_proto__init(&model->proto);
	onnx__graph_proto__init(&model->graph);
	onnx__operator_set_id_proto__init(&model->opset);
	model->opset.has_version = 1;
	model->opset.version = opset;
	model->opset.domain = copy(model, "");
	model->opsets[0] = &model->opset;
	model->graph.name = copy(model, "test");
	model->proto.has_ir_version = 1;
	model->proto.ir_version = 8;
	model->proto.n_opset_import = 1;
	model->proto.opset_import = model->opsets;
	model->proto.graph = &model->graph;
}

void onnx_model_deinit(struct onnx_model *model)
{
	mem_deinit(&model->mem);
}

static Onnx__TensorShapeProto *make_shape(struct onnx_model *model, unsigned int rank,
					  const int64_t *dims)
{
	Onnx__TensorShapeProto *shape = take(model, sizeof(*shape));

	onnx__tensor_shape_proto__init(shape);
	for (unsigned int i = 0; i < rank; i++) {
		Onnx__TensorShapeProto__Dimension *dim = take(model, sizeof(*dim));

		onnx__tensor_shape_proto__dimension__init(dim);
		if (dims[i] >= 0 || dims[i] < -3) {
			dim->value_case = ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE;
			dim->dim_value = dims[i];
		} else if (dims[i] != -3) {
			dim->value_case = ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM;
			dim->dim_param = copy(model, dims[i] == -1 ? "N" : "M");
		}
		append(model, &shape->n_dim, &shape->dim, dim);
	}
	return shape;
}

static Onnx__ValueInfoProto *make_info(struct onnx_model *model, const char *name)
{
	Onnx__ValueInfoProto *info = take(model, sizeof(*info));

	onnx__value_info_proto__init(info);
	info->name = copy(model, name);
	return info;
}

Onnx__ValueInfoProto *onnx_model_input(struct onnx_model *model, const char *name, int dtype,
				       unsigned int rank, const int64_t *dims)
{
	Onnx__ValueInfoProto *info = make_info(model, name);
	Onnx__TypeProto__Tensor *tensor = take(model, sizeof(*tensor));

	info->type = take(model, sizeof(*info->type));
	onnx__type_proto__init(info->type);
	onnx__type_proto__tensor__init(tensor);
	tensor->has_elem_type = 1;
	tensor->elem_type = dtype;
	tensor->shape = make_shape(model, rank, dims);
	info->type->value_case = ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE;
	info->type->tensor_type = tensor;
	append(model, &model->graph.n_input, &model->graph.input, info);
	return info;
}

Onnx__ValueInfoProto *onnx_model_graph_output(struct onnx_model *model, Onnx__GraphProto *graph,
					      const char *name)
{
	Onnx__ValueInfoProto *info = make_info(model, name);

	append(model, &graph->n_output, &graph->output, info);
	return info;
}

Onnx__ValueInfoProto *onnx_model_output(struct onnx_model *model, const char *name)
{
	return onnx_model_graph_output(model, &model->graph, name);
}

Onnx__TensorProto *onnx_model_tensor(struct onnx_model *model, const char *name, int dtype,
				     unsigned int rank, const int64_t *dims, const void *data,
				     size_t n_bytes)
{
	Onnx__TensorProto *tensor = take(model, sizeof(*tensor));

	onnx__tensor_proto__init(tensor);
	tensor->name = copy(model, name);
	tensor->has_data_type = 1;
	tensor->data_type = dtype;
	tensor->n_dims = rank;
	tensor->dims = take(model, rank * sizeof(*dims));
	if (rank > 0)
		memcpy(tensor->dims, dims, rank * sizeof(*dims));
	tensor->has_raw_data = data != NULL;
	tensor->raw_data.len = n_bytes;
	tensor->raw_data.data = take(model, n_bytes);
	if (n_bytes > 0)
		memcpy(tensor->raw_data.data, data, n_bytes);
	return tensor;
}

Onnx__TensorProto *onnx_model_constant(struct onnx_model *model, const char *name, int dtype,
				       unsigned int rank, const int64_t *dims, const void *data,
				       size_t n_bytes)
{
	Onnx__TensorProto *tensor =
		onnx_model_tensor(model, name, dtype, rank, dims, data, n_bytes);

	append(model, &model->graph.n_initializer, &model->graph.initializer, tensor);
	return tensor;
}

Onnx__TensorProto *onnx_model_ints(struct onnx_model *model, const char *name, unsigned int n,
				   const int64_t *values)
{
	const int64_t dims[] = {n};

	return onnx_model_constant(model, name, 7, 1, dims, values, n * sizeof(*values));
}

static void split(struct onnx_model *model, const char *names, size_t *n, char ***list)
{
	while (*names) {
		size_t length = strcspn(names, " ");
		char *name = take(model, length + 1);

		memcpy(name, names, length);
		if (!strcmp(name, "-"))
			name[0] = 0;
		append(model, n, list, name);
		names += length + (names[length] == ' ');
	}
}

static Onnx__NodeProto *make_node(struct onnx_model *model, const char *op, const char *inputs,
				  const char *outputs)
{
	Onnx__NodeProto *node = take(model, sizeof(*node));

	onnx__node_proto__init(node);
	node->op_type = copy(model, op);
	split(model, inputs, &node->n_input, &node->input);
	split(model, outputs, &node->n_output, &node->output);
	return node;
}

Onnx__NodeProto *onnx_model_graph_node(struct onnx_model *model, Onnx__GraphProto *graph,
				       const char *op, const char *inputs, const char *outputs)
{
	Onnx__NodeProto *node = make_node(model, op, inputs, outputs);

	append(model, &graph->n_node, &graph->node, node);
	return node;
}

Onnx__NodeProto *onnx_model_node(struct onnx_model *model, const char *op, const char *inputs,
				 const char *outputs)
{
	return onnx_model_graph_node(model, &model->graph, op, inputs, outputs);
}

Onnx__AttributeProto *onnx_model_attr(struct onnx_model *model, Onnx__NodeProto *node,
				      const char *name)
{
	Onnx__AttributeProto *attr = take(model, sizeof(*attr));

	onnx__attribute_proto__init(attr);
	attr->name = copy(model, name);
	attr->has_type = 1;
	append(model, &node->n_attribute, &node->attribute, attr);
	return attr;
}

void onnx_model_attr_int(struct onnx_model *model, Onnx__NodeProto *node, const char *name,
			 int64_t value)
{
	Onnx__AttributeProto *attr = onnx_model_attr(model, node, name);

	attr->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT;
	attr->has_i = 1;
	attr->i = value;
}

void onnx_model_attr_float(struct onnx_model *model, Onnx__NodeProto *node, const char *name,
			   float value)
{
	Onnx__AttributeProto *attr = onnx_model_attr(model, node, name);

	attr->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT;
	attr->has_f = 1;
	attr->f = value;
}

void onnx_model_attr_ints(struct onnx_model *model, Onnx__NodeProto *node, const char *name,
			  unsigned int n, const int64_t *values)
{
	Onnx__AttributeProto *attr = onnx_model_attr(model, node, name);

	attr->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS;
	attr->n_ints = n;
	attr->ints = take(model, n * sizeof(*values));
	memcpy(attr->ints, values, n * sizeof(*values));
}

void onnx_model_attr_string(struct onnx_model *model, Onnx__NodeProto *node, const char *name,
			    const char *value)
{
	Onnx__AttributeProto *attr = onnx_model_attr(model, node, name);

	attr->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRING;
	attr->has_s = 1;
	attr->s.len = strlen(value);
	attr->s.data = (uint8_t *)copy(model, value);
}

Onnx__GraphProto *onnx_model_branch(struct onnx_model *model, Onnx__NodeProto *node,
				    const char *name)
{
	Onnx__AttributeProto *attr = onnx_model_attr(model, node, name);

	attr->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__GRAPH;
	attr->g = take(model, sizeof(*attr->g));
	onnx__graph_proto__init(attr->g);
	return attr->g;
}

/* ---- Functions ---- */

Onnx__FunctionProto *onnx_model_function(struct onnx_model *model, const char *domain,
					 const char *name, const char *inputs, const char *outputs,
					 int64_t opset)
{
	Onnx__FunctionProto *function = take(model, sizeof(*function));
	Onnx__OperatorSetIdProto *import = take(model, sizeof(*import));

	onnx__function_proto__init(function);
	onnx__operator_set_id_proto__init(import);
	import->domain = copy(model, "");
	import->has_version = 1;
	import->version = opset;
	append(model, &function->n_opset_import, &function->opset_import, import);
	function->domain = copy(model, domain);
	function->name = copy(model, name);
	split(model, inputs, &function->n_input, &function->input);
	split(model, outputs, &function->n_output, &function->output);
	append(model, &model->proto.n_functions, &model->proto.functions, function);
	return function;
}

Onnx__NodeProto *onnx_model_function_node(struct onnx_model *model, Onnx__FunctionProto *function,
					  const char *op, const char *inputs, const char *outputs)
{
	Onnx__NodeProto *node = make_node(model, op, inputs, outputs);

	append(model, &function->n_node, &function->node, node);
	return node;
}

void onnx_model_function_attr(struct onnx_model *model, Onnx__FunctionProto *function,
			      const char *name)
{
	append(model, &function->n_attribute, &function->attribute, copy(model, name));
}

/* Add a field that the schema may lack: a length below 128, and that many bytes. */
static void add_newer(struct onnx_model *model, ProtobufCMessage *message, uint32_t tag,
		      const void *bytes, size_t n)
{
	ProtobufCMessageUnknownField *fields =
		take(model, (message->n_unknown_fields + 1) * sizeof(*fields));
	uint8_t *data = take(model, n + 1);

	assert(n < 128);
	data[0] = (uint8_t)n;
	memcpy(data + 1, bytes, n);
	for (unsigned int i = 0; i < message->n_unknown_fields; i++)
		fields[i] = message->unknown_fields[i];
	fields[message->n_unknown_fields++] = (ProtobufCMessageUnknownField){
		.tag = tag,
		.wire_type = PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED,
		.len = n + 1,
		.data = data,
	};
	message->unknown_fields = fields;
}

void onnx_model_function_default(struct onnx_model *model, Onnx__FunctionProto *function,
				 const Onnx__AttributeProto *attr)
{
	const size_t n = onnx__attribute_proto__get_packed_size(attr);
	uint8_t *bytes = take(model, n);

	onnx__attribute_proto__pack(attr, bytes);
	add_newer(model, &function->base, 11, bytes, n);
}

void onnx_model_function_overload(struct onnx_model *model, Onnx__FunctionProto *function,
				  const char *overload)
{
	add_newer(model, &function->base, 13, overload, strlen(overload));
}

void onnx_model_overload(struct onnx_model *model, Onnx__NodeProto *node, const char *overload)
{
	add_newer(model, &node->base, 8, overload, strlen(overload));
}

Onnx__NodeProto *onnx_model_domain(struct onnx_model *model, Onnx__NodeProto *node,
				   const char *domain)
{
	node->domain = copy(model, domain);
	return node;
}

void onnx_model_import(struct onnx_model *model, const char *domain)
{
	Onnx__OperatorSetIdProto *import = take(model, sizeof(*import));

	onnx__operator_set_id_proto__init(import);
	import->domain = copy(model, domain);
	import->has_version = 1;
	import->version = 1;
	append(model, &model->proto.n_opset_import, &model->proto.opset_import, import);
}

void onnx_model_attr_ref(struct onnx_model *model, Onnx__NodeProto *node, const char *name,
			 const char *from)
{
	onnx_model_attr(model, node, name)->ref_attr_name = copy(model, from);
}

const uint8_t *onnx_model_pack(struct onnx_model *model, size_t *ret_n_bytes)
{
	uint8_t *bytes;

	*ret_n_bytes = onnx__model_proto__get_packed_size(&model->proto);
	bytes = take(model, *ret_n_bytes);
	onnx__model_proto__pack(&model->proto, bytes);
	return bytes;
}

/* SPDX-License-Identifier: MIT */
/*
 * Loading a model or a tensor from bytes
 *
 * A file is mapped, scanned (scan.c) and unpacked by protobuf-c into limited memory. The limit is a
 * multiple of the file's size, because the shortest messages become structures of some hundred
 * bytes. The file is unmapped afterwards; strings and tensors are copies.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libclient/onnx/graph.h"

/* Limit of the memory for unpacking: nodes become ten times as large, integers eight times. */
#define PARSE_BASE_BYTES (16ull << 20)
#define PARSE_FACTOR     24

int onnx_map_file(const char *path, const void **ret_bytes, size_t *ret_n_bytes,
		  struct rbk_error *error)
{
	struct stat stat;
	void *bytes = NULL;
	int fd, r = 0;

	fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (fd < 0)
		return onnx_error(error, -errno, "cannot open \"%s\": %m", path);
	if (fstat(fd, &stat))
		r = onnx_error(error, -errno, "cannot look at \"%s\": %m", path);
	else if (S_ISDIR(stat.st_mode))
		r = onnx_error(error, -EBADMSG, "\"%s\" is a folder, and not a file in it", path);
	else if (!S_ISREG(stat.st_mode))
		r = onnx_error(error, -EBADMSG, "\"%s\" is not a regular file", path);
	else if ((uint64_t)stat.st_size > ONNX_MAX_FILE_BYTES)
		r = onnx_error(error, -EFBIG, "\"%s\" has more than 2 GiB", path);
	if (!r && stat.st_size > 0) {
		bytes = mmap(NULL, (size_t)stat.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
		if (bytes == MAP_FAILED)
			r = onnx_error(error, -errno, "cannot map \"%s\": %m", path);
	}
	close(fd);
	if (r)
		return r;
	*ret_bytes = bytes ? bytes : "";
	*ret_n_bytes = (size_t)stat.st_size;
	return 0;
}

static void unmap(const void *bytes, size_t n_bytes)
{
	if (n_bytes > 0)
		munmap((void *)bytes, n_bytes);
}

/* Prefix the sentence with the file's path. */
static int about(struct rbk_error *error, int r, const char *path)
{
	struct rbk_error inner;

	if (!error)
		return r;
	inner = *error;
	return onnx_error(error, r, "\"%.200s\": %s", path, inner.text);
}

/* ---- Models ---- */

ONNX_EXPORT struct rbk_onnx *rbk_onnx_free(struct rbk_onnx *model)
{
	if (!model)
		return NULL;
	graph_free(model->graph);
	for (uint32_t i = 0; i < model->n_inputs; i++)
		free(model->inputs[i].set);
	external_deinit(&model->external);
	mem_deinit(&model->mem);
	free(model);
	return NULL;
}

static int open_folder(const char *folder, int *ret, struct rbk_error *error)
{
	*ret = open(folder[0] ? folder : ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
	return *ret < 0 ? onnx_error(error, -errno, "cannot open folder \"%s\": %m", folder) : 0;
}

static int load(const void *bytes, size_t n_bytes, const char *folder, struct rbk_onnx **ret,
		struct rbk_error *error)
{
	struct rbk_onnx *model = calloc(1, sizeof(*model));
	ProtobufCMessage *message;
	int r = 0;

	if (!model)
		return onnx_error(error, -ENOMEM, "out of memory");
	model->external.folder = -1;
	mem_init(&model->mem, PARSE_BASE_BYTES + PARSE_FACTOR * (uint64_t)n_bytes);
	if (n_bytes > ONNX_MAX_FILE_BYTES)
		r = onnx_error(error, -EFBIG, "it has more than 2 GiB");
	if (!r && folder)
		r = open_folder(folder, &model->external.folder, error);
	if (!r)
		r = onnx_unpack(&model->mem, &onnx__model_proto__descriptor, bytes, n_bytes,
				&message, error);
	if (!r) {
		model->proto = (const Onnx__ModelProto *)message;
		r = model_resolve(model, error);
	}
	if (r == -EBADMSG && (!model->proto || !model->proto->graph))
		r = kind_explain(bytes, n_bytes, r, error);
	if (r) {
		rbk_onnx_free(model);
		return r;
	}
	*ret = model;
	return 0;
}

ONNX_EXPORT int rbk_onnx_load_bytes(const void *bytes, size_t n_bytes, const char *folder,
				    struct rbk_onnx **ret, struct rbk_error *error)
{
	if (!bytes && n_bytes)
		return onnx_error(error, -EINVAL, "there are no bytes");
	return load(bytes, n_bytes, folder, ret, error);
}

ONNX_EXPORT int rbk_onnx_load(const char *path, struct rbk_onnx **ret, struct rbk_error *error)
{
	const char *slash = strrchr(path, '/');
	const void *bytes = NULL;
	size_t n_bytes = 0;
	char *folder;
	int r;

	r = onnx_map_file(path, &bytes, &n_bytes, error);
	if (r)
		return r;
	folder = slash ? strndup(path, (size_t)(slash - path) + 1) : strdup(".");
	r = folder ? load(bytes, n_bytes, folder, ret, error)
		   : onnx_error(error, -ENOMEM, "out of memory");
	free(folder);
	unmap(bytes, n_bytes);
	return r ? about(error, r, path) : 0;
}

/* ---- Tensor files ---- */

ONNX_EXPORT void rbk_onnx_tensor_free(struct rbk_onnx_tensor *tensor)
{
	/* One block: the elements, then the name. */
	free((void *)tensor->data);
	*tensor = (struct rbk_onnx_tensor){0};
}

ONNX_EXPORT int rbk_onnx_tensor_load_bytes(const void *bytes, size_t n_bytes,
					   struct rbk_onnx_tensor *ret, struct rbk_error *error)
{
	struct constant constant;
	ProtobufCMessage *message;
	const Onnx__TensorProto *proto;
	struct rbk_onnx_tensor tensor;
	const char *name;
	struct mem mem;
	char *block;
	int r;

	mem_init(&mem, PARSE_BASE_BYTES + PARSE_FACTOR * (uint64_t)n_bytes);
	r = onnx_unpack(&mem, &onnx__tensor_proto__descriptor, bytes, n_bytes, &message, error);
	if (!r) {
		proto = (const Onnx__TensorProto *)message;
		r = constant_decode(&mem, NULL, proto, "tensor", &constant, error);
	}
	if (r) {
		mem_deinit(&mem);
		return r;
	}
	name = proto->name ? proto->name : "";
	block = malloc(constant.n_bytes + strlen(name) + 1);
	if (block) {
		memcpy(block, constant.data, constant.n_bytes);
		strcpy(block + constant.n_bytes, name);
		tensor = (struct rbk_onnx_tensor){
			.dtype = constant.dtype,
			.rank = (int32_t)constant.rank,
			.data = block,
			.n_bytes = constant.n_bytes,
			.name = block + constant.n_bytes,
		};
		memcpy(tensor.dims, constant.dims, sizeof(tensor.dims));
		*ret = tensor;
	}
	mem_deinit(&mem);
	return block ? 0 : onnx_error(error, -ENOMEM, "out of memory");
}

ONNX_EXPORT int rbk_onnx_tensor_load(const char *path, struct rbk_onnx_tensor *ret,
				     struct rbk_error *error)
{
	const void *bytes = NULL;
	size_t n_bytes = 0;
	int r;

	r = onnx_map_file(path, &bytes, &n_bytes, error);
	if (r)
		return r;
	r = rbk_onnx_tensor_load_bytes(bytes, n_bytes, ret, error);
	unmap(bytes, n_bytes);
	return r ? about(error, r, path) : 0;
}

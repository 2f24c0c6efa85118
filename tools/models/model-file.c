/* SPDX-License-Identifier: MIT */
/*
 * Files for inputs and outputs
 *
 * A file that begins like a .npy file is one, whatever its name. Any other file named .pb is read
 * as a TensorProto, which has no magic number.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "models/model-private.h"
#include "models/model.h"

static bool is_called_pb(const char *path)
{
	size_t n = strlen(path);

	return n > 3 && strcmp(path + n - 3, ".pb") == 0;
}

static int read_tensor(const char *path, struct array *ret, char why[MODEL_WHY_BYTES])
{
	struct rbk_onnx_tensor tensor = {.data = NULL};
	struct rbk_error error = {""};
	void *data;
	int r;

	r = rbk_onnx_tensor_load(path, &tensor, &error);
	if (r)
		return model_fail(why, r, "%s", error.text);
	r = array_new(tensor.dtype, (unsigned int)tensor.rank, tensor.dims, ret, &data);
	if (r == -EINVAL)
		r = model_fail(
			why, -EOPNOTSUPP,
			"%.300s has elements of type %s; float32, float16, float64, bfloat16, "
			"int8, uint8, int32, int64 and bool are known",
			path, rbk_onnx_dtype_name(tensor.dtype));
	else if (r || ret->bytes != tensor.n_bytes)
		r = model_fail(why, r ? r : -EBADMSG, "%.300s: %s", path,
			       strerror(r ? -r : EBADMSG));
	else if (ret->bytes)
		memcpy(data, tensor.data, ret->bytes);
	rbk_onnx_tensor_free(&tensor);
	return r;
}

int model_read_array(const char *path, struct array *ret, char why[MODEL_WHY_BYTES])
{
	char array_why[ARRAY_WHY_BYTES];
	int r;

	if (is_called_pb(path) && !array_is_npy(path))
		return read_tensor(path, ret, why);
	r = array_read_npy(path, ret, array_why);
	return r ? model_fail(why, r, "%s", array_why) : 0;
}

int model_write_array(const char *path, const struct array *array, const char *name,
		      char why[MODEL_WHY_BYTES])
{
	char array_why[ARRAY_WHY_BYTES];
	int r = is_called_pb(path) ? array_write_tensor_proto(path, array, name, array_why)
				   : array_write_npy(path, array, array_why);

	return r ? model_fail(why, r, "%s", array_why) : 0;
}

/* SPDX-License-Identifier: MIT */
/* Math libraries as baselines: common part */
#include "library-ops.h"

#include <errno.h>
#include <stddef.h>

struct library *library_free(struct library *library)
{
	if (library)
		library->ops->free(library);
	return NULL;
}

const char *library_name(const struct library *library)
{
	return library->name;
}

int library_matmul_new(struct library *library, uint32_t m, uint32_t k, uint32_t n, const float *a,
		       const float *b, float *c, struct library_matmul **ret)
{
	return library->ops->matmul_new(library, m, k, n, a, b, c, ret);
}

int library_matmul8_new(struct library *library, uint32_t m, uint32_t k, uint32_t n,
			const uint8_t *a, const int8_t *b, int32_t *c, struct library_matmul **ret)
{
	if (!library->ops->matmul8_new)
		return -ENOSYS;
	return library->ops->matmul8_new(library, m, k, n, a, b, c, ret);
}

struct library_matmul *library_matmul_free(struct library_matmul *matmul)
{
	if (matmul)
		matmul->library->ops->matmul_free(matmul);
	return NULL;
}

int library_matmul_run(struct library_matmul *matmul)
{
	return matmul->library->ops->matmul_run(matmul);
}

int library_operator_new(struct library *library, const struct operator_shape *shape,
			 const struct operator_data *data, bool own_layout, unsigned int n_threads,
			 struct library_operator **ret)
{
	if (!library->ops->operator_new)
		return -ENOSYS;
	return library->ops->operator_new(library, shape, data, own_layout, n_threads, ret);
}

struct library_operator *library_operator_free(struct library_operator *operator)
{
	if (operator)
		operator->library->ops->operator_free(operator);
	return NULL;
}

int library_operator_run(struct library_operator *operator)
{
	return operator->library->ops->operator_run(operator);
}

int library_operator_fetch(struct library_operator *operator)
{
	return operator->library->ops->operator_fetch(operator);
}

/* SPDX-License-Identifier: MIT */
/*
 * Bytes of a device that this process uses, their peak, and the bytes last reported to the broker.
 */
#include <ringbroker/lease.h>

#include "libclient/layer/gpu.h"

uint64_t gpu_used_bytes(const struct gpu *gpu)
{
	uint64_t bytes = __atomic_load_n(&gpu->kept_bytes, __ATOMIC_RELAXED);
	uint32_t local_heaps = __atomic_load_n(&gpu->local_heaps, __ATOMIC_RELAXED);

	for (; local_heaps; local_heaps &= local_heaps - 1) {
		unsigned int heap = (unsigned int)__builtin_ctz(local_heaps);

		bytes += __atomic_load_n(&gpu->live_bytes[heap], __ATOMIC_RELAXED) -
			 __atomic_load_n(&gpu->twice_bytes[heap], __ATOMIC_RELAXED);
	}
	return bytes;
}

static uint64_t all_bytes(const struct gpu *gpu)
{
	return gpu_used_bytes(gpu) + __atomic_load_n(&gpu->account.extra_bytes, __ATOMIC_RELAXED);
}

void gpu_note_peak(struct gpu *gpu)
{
	uint64_t peak_bytes = __atomic_load_n(&gpu->peak_bytes, __ATOMIC_RELAXED);
	uint64_t bytes = all_bytes(gpu);

	while (bytes > peak_bytes &&
	       !__atomic_compare_exchange_n(&gpu->peak_bytes, &peak_bytes, bytes, true,
					    __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		;
}

void gpu_note_told(struct gpu *gpu, const struct rbk_lease_use *use)
{
	uint64_t peak_bytes = __atomic_load_n(&gpu->peak_bytes, __ATOMIC_RELAXED);

	/* Keep a higher peak that another thread has recorded meanwhile. */
	if (peak_bytes <= use->peak_bytes)
		__atomic_compare_exchange_n(&gpu->peak_bytes, &peak_bytes, 0, false,
					    __ATOMIC_RELAXED, __ATOMIC_RELAXED);
	__atomic_store_n(&gpu->told_bytes, use->used_bytes + use->extra_bytes, __ATOMIC_RELAXED);
}

bool gpu_is_told(const struct gpu *gpu)
{
	uint64_t told_bytes = __atomic_load_n(&gpu->told_bytes, __ATOMIC_RELAXED);

	return all_bytes(gpu) == told_bytes &&
	       __atomic_load_n(&gpu->peak_bytes, __ATOMIC_RELAXED) <= told_bytes;
}

void gpu_describe_use(struct gpu *gpu, struct rbk_lease_use *ret)
{
	const struct account *account = &gpu->account;

	ret->used_bytes = gpu_used_bytes(gpu);
	ret->extra_bytes = __atomic_load_n(&account->extra_bytes, __ATOMIC_RELAXED);
	ret->n_objects = (uint32_t)(__atomic_load_n(&gpu->n_allocated, __ATOMIC_RELAXED) -
				    __atomic_load_n(&gpu->n_freed, __ATOMIC_RELAXED));
	ret->n_refused = __atomic_load_n(&account->n_refused, __ATOMIC_RELAXED);
	gpu_note_peak(gpu);
	ret->peak_bytes = __atomic_load_n(&gpu->peak_bytes, __ATOMIC_RELAXED);
}

void gpu_set_driver_bytes(struct gpu *gpu, uint64_t bytes)
{
	uint32_t local_heaps = __atomic_load_n(&gpu->local_heaps, __ATOMIC_RELAXED);
	uint64_t known_bytes = 0;

	/* The driver counts an object once per allocation or import. */
	for (; local_heaps; local_heaps &= local_heaps - 1)
		known_bytes += __atomic_load_n(&gpu->live_bytes[__builtin_ctz(local_heaps)],
					       __ATOMIC_RELAXED);
	bytes = bytes > known_bytes ? bytes - known_bytes : 0;
	gpu_note_peak(gpu);
	account_set_extra(&gpu->account, (bytes + 4095) / 4096 * 4096);
}

/* SPDX-License-Identifier: MIT */
/*
 * Plans
 *
 * A description is sent in the request itself, or, if it is larger than a message, in a sealed
 * memfd. A plan holds references to the arenas of its constants, see arena.c, and, where the
 * connection may re-attach, its description, which the next broker gets.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libclient/private.h"

static void free_pointer(void *pointer)
{
	free(*(void **)pointer);
}

/* Return: 0 and a sealed memfd that holds @desc; negative errno. */
static int memfd_of(const void *desc, size_t bytes, int *ret_fd)
{
	client_cleanup(client_close) int fd = -1;
	size_t done = 0;
	int r;

	r = client_memfd_new("ringbroker-plan", bytes, &fd);
	if (r)
		return r;
	while (done < bytes) {
		ssize_t n = pwrite(fd, (const char *)desc + done, bytes - done, (off_t)done);

		if (n < 0 && errno != EINTR)
			return -errno;
		if (n > 0)
			done += (size_t)n;
	}
	if (fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SEAL))
		return -errno;
	*ret_fd = fd;
	fd = -1;
	return 0;
}

static void plan_hold_arenas(struct rbk_plan *plan, const struct rbk_builder *builder)
{
	const struct builder_tensor *tensors = builder->tensors.items;

	for (size_t i = 0; i < builder->tensors.n; i++)
		if (tensors[i].arena)
			plan->arenas[plan->n_arenas++] = client_arena_ref(tensors[i].arena);
}

/* Keep what rbk_sqe_check() needs of the tensors that a task binds. */
static void plan_keep_refs(struct rbk_plan *plan, const struct rbk_builder *builder)
{
	const struct builder_tensor *tensors = builder->tensors.items;
	unsigned int n = 0;

	for (size_t i = 0; i < builder->tensors.n; i++) {
		const struct builder_tensor *tensor = &tensors[i];

		if (tensor->kind == RBK_TENSOR_CONSTANT || tensor->kind == RBK_TENSOR_SCRATCH)
			continue;
		plan->refs[n] = (struct plan_ref){
			.bytes = tensor->inferred ? 0 : tensor->bytes,
			.is_dynamic = tensor->dynamic,
			.is_written = tensor->kind != RBK_TENSOR_INPUT,
		};
		memcpy(plan->refs[n++].name, tensor->name, sizeof(tensor->name));
	}
}

int client_plan_add(struct rbk *rbk, const void *desc, size_t bytes, struct client_answer *ret,
		    struct rbk_error *error)
{
	client_cleanup(client_close) int fd = -1;
	struct rbk_wire_plan_add request = {
		.request.type = RBK_WIRE_PLAN_ADD,
		.desc_bytes = (uint32_t)bytes,
	};
	struct client_message message = {&request.request, sizeof(request), NULL, 0, -1};
	int r;

	if (bytes <= RBK_WIRE_MAX_BYTES - sizeof(request)) {
		message.tail = desc;
		message.tail_bytes = bytes;
	} else {
		r = memfd_of(desc, bytes, &fd);
		if (r)
			return client_error(error, r, "cannot make a description of %zu bytes: %m",
					    bytes);
		request.flags = RBK_WIRE_PLAN_FD;
		message.fd = fd;
	}
	return client_request(rbk, &message, ret, error);
}

RBK_EXPORT int rbk_plan_new(struct rbk *rbk, const struct rbk_builder *builder, uint32_t max_count,
			    struct rbk_plan **ret, struct rbk_error *error)
{
	client_cleanup(free_pointer) struct rbk_plan *plan = NULL;
	client_cleanup(free_pointer) struct plan_ref *refs = NULL;
	client_cleanup(free_pointer) void *desc = NULL;
	struct client_answer answer;
	size_t desc_bytes;
	int r;

	r = client_check(rbk, error);
	if (r)
		return r;
	if (!builder)
		return client_error(error, -ENOMEM, "out of memory");
	r = client_describe(builder, rbk, max_count, &desc, &desc_bytes, error);
	if (r)
		return r;
	/* Each tensor is at most one constant. */
	plan = calloc(1, sizeof(*plan) + builder->tensors.n * sizeof(plan->arenas[0]));
	refs = calloc(builder->n_refs + 1, sizeof(*refs));
	if (!plan || !refs)
		return client_error(error, -ENOMEM, "out of memory");

	do {
		r = client_plan_add(rbk, desc, desc_bytes, &answer, error);
		if (r)
			return r;
	} while (!client_objects_lock_for(rbk, answer.generation));

	plan->rbk = client_ref(rbk);
	plan_hold_arenas(plan, builder);
	plan->info = (struct rbk_plan_info){
		.id = answer.reply.plan.id,
		.devices = answer.reply.plan.devices,
		.n_refs = builder->n_refs,
		.max_count = max_count,
		.constant_bytes = answer.reply.plan.constant_bytes,
		.scratch_bytes = answer.reply.plan.scratch_bytes,
		.flops_fixed = answer.reply.plan.flops_fixed,
		.flops_row = answer.reply.plan.flops_row,
		.bytes_fixed = answer.reply.plan.bytes_fixed,
		.bytes_row = answer.reply.plan.bytes_row,
	};
	plan->refs = refs;
	plan_keep_refs(plan, builder);
	if (rbk->reattach.is_possible) {
		plan->desc = desc;
		plan->desc_bytes = desc_bytes;
		desc = NULL;
	}
	client_know(rbk, &rbk->plans, &plan->known, plan->info.id, false, NULL);
	/* The upper half of an id counts plans, and begins again after the last. */
	if ((int16_t)((plan->info.id >> 16) - (rbk->last_plan_id >> 16)) > 0)
		rbk->last_plan_id = plan->info.id;
	client_objects_unlock(rbk);
	*ret = plan;
	plan = NULL;
	refs = NULL;
	return 0;
}

RBK_EXPORT struct rbk_plan *rbk_plan_free(struct rbk_plan *plan)
{
	if (!plan)
		return NULL;
	client_remove(plan->rbk, RBK_WIRE_PLAN_REMOVE, plan->info.id, NULL);
	client_unknow(plan->rbk, &plan->known);
	client_objects_unlock(plan->rbk);
	for (unsigned int i = 0; i < plan->n_arenas; i++)
		client_arena_unref(plan->arenas[i]);
	client_unref(plan->rbk);
	free(plan->refs);
	free(plan->desc);
	free(plan);
	return NULL;
}

RBK_EXPORT uint32_t rbk_plan_id(const struct rbk_plan *plan)
{
	return plan->info.id;
}

_Static_assert(sizeof(struct rbk_plan_memory) == sizeof(struct rbk_wire_plan_device), "mirrored");
_Static_assert(offsetof(struct rbk_plan_memory, tier) ==
		       offsetof(struct rbk_wire_plan_device, tier),
	       "mirrored");
_Static_assert(offsetof(struct rbk_plan_memory, resident_bytes) ==
		       offsetof(struct rbk_wire_plan_device, resident_bytes),
	       "mirrored");
_Static_assert(offsetof(struct rbk_plan_memory, n_returns) ==
		       offsetof(struct rbk_wire_plan_device, n_returns),
	       "mirrored");

RBK_EXPORT int rbk_plan_memory(const struct rbk_plan *plan, struct rbk_plan_memory *devices,
			       unsigned int max_devices, unsigned int *ret_n_devices,
			       uint64_t *ret_n_constrained)
{
	return rbk_get_plan_memory(plan, devices, max_devices, ret_n_devices, ret_n_constrained,
				   NULL);
}

RBK_EXPORT int rbk_get_plan_memory(const struct rbk_plan *plan, struct rbk_plan_memory *devices,
				   unsigned int max_devices, unsigned int *ret_n_devices,
				   uint64_t *ret_n_constrained, struct rbk_error *error)
{
	struct rbk_wire_id request = {.request.type = RBK_WIRE_PLAN_MEMORY, .id = plan->info.id};
	struct client_message message = {&request.request, sizeof(request), NULL, 0, -1};
	struct client_answer answer;
	unsigned int n;
	int r;

	r = client_check(plan->rbk, error);
	if (r)
		return r;
	if (!(plan->rbk->features & RBK_FEAT_RESIDENCY))
		return client_error(error, -EOPNOTSUPP,
				    "%s does not report the memory of plans: it does not offer "
				    "RBK_FEAT_RESIDENCY",
				    rbk_broker_name(plan->rbk));
	r = client_request(plan->rbk, &message, &answer, error);
	if (r)
		return r;
	n = answer.reply.plan_memory.n_devices;
	if (max_devices > 0)
		memcpy(devices, answer.reply.plan_memory.devices,
		       (n < max_devices ? n : max_devices) * sizeof(*devices));
	*ret_n_devices = n;
	if (ret_n_constrained)
		*ret_n_constrained = answer.reply.plan_memory.n_constrained;
	return 0;
}

RBK_EXPORT void rbk_plan_info(const struct rbk_plan *plan, struct rbk_plan_info *ret)
{
	*ret = plan->info;
}

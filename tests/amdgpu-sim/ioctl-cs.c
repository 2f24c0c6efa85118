/* SPDX-License-Identifier: MIT */
/*
 * Contexts and submissions: drivers/gpu/drm/amd/amdgpu/amdgpu_ctx.c, amdgpu_cs.c, amdgpu_bo_list.c
 *
 * The simulator checks a submission as the kernel does, marks the listed buffers as used, and gives
 * the submission to an engine (engine.h). Nothing is executed. A comment above a function names the
 * functions of the kernel that it imitates.
 */
#include "engine.h"
#include "ib.h"
#include "ioctl.h"
#include "memory.h"
#include <errno.h>
#include <string.h>
#include <unistd.h>

enum { NO_ENGINE = SIM_N_ENGINES }; /* no IB was seen */

static struct sim_context *context_of(const struct sim_fd *client, uint32_t id)
{
	struct sim_card *card = client->card;

	if (!id || id > card->n_contexts || card->contexts[id - 1].owner != client->slot + 1)
		return NULL;
	return &card->contexts[id - 1];
}

/* amdgpu_gem_timeout(): absolute; negative is for ever. */
static int64_t deadline_of(uint64_t timeout_ns)
{
	return (int64_t)timeout_ns < 0 ? INT64_MAX : (int64_t)timeout_ns;
}

/* amdgpu_ctx_to_drm_sched_prio() */
static uint32_t priority_of(int32_t priority)
{
	if (priority == AMDGPU_CTX_PRIORITY_UNSET || priority == AMDGPU_CTX_PRIORITY_NORMAL)
		return 1;
	return priority < AMDGPU_CTX_PRIORITY_NORMAL ? 0 : 2;
}

/* amdgpu_ctx_alloc(), amdgpu_ctx_priority_permit() */
static int ctx_alloc(const struct sim_fd *client, union drm_amdgpu_ctx *args)
{
	struct sim_card *card = client->card;
	int32_t priority = args->in.priority;
	uint32_t at;

	/* The kernel demands CAP_SYS_NICE or DRM master; root has the capability. */
	if (priority > AMDGPU_CTX_PRIORITY_NORMAL && priority <= AMDGPU_CTX_PRIORITY_VERY_HIGH &&
	    geteuid() != 0)
		return -EACCES;
	for (at = 0; at < card->n_contexts && card->contexts[at].owner; at++)
		;
	if (at == SIM_MAX_CONTEXTS)
		return -ENOMEM;
	if (at == card->n_contexts)
		card->n_contexts++;
	card->contexts[at] = (struct sim_context){
		.owner = client->slot + 1,
		.priority = priority_of(priority),
		.reset_counter = card->reset_counter,
		.query_counter = card->reset_counter,
		.vram_lost_counter = card->vram_lost_counter,
	};
	memset(args, 0, sizeof(*args));
	args->out.alloc.ctx_id = at + 1;
	return 0;
}

/* amdgpu_ctx_query(): report each reset once. */
static void ctx_query(const struct sim_fd *client, struct sim_context *context,
		      union drm_amdgpu_ctx *args)
{
	memset(args, 0, sizeof(*args));
	if (context->query_counter != client->card->reset_counter)
		args->out.state.reset_status = AMDGPU_CTX_UNKNOWN_RESET;
	context->query_counter = client->card->reset_counter;
}

/* amdgpu_ctx_query2(): report a reset as long as the context lives. */
static void ctx_query2(const struct sim_fd *client, const struct sim_context *context,
		       union drm_amdgpu_ctx *args)
{
	uint64_t flags = 0;

	if (context->reset_counter != client->card->reset_counter)
		flags |= AMDGPU_CTX_QUERY2_FLAGS_RESET;
	if (context->vram_lost_counter != client->card->vram_lost_counter)
		flags |= AMDGPU_CTX_QUERY2_FLAGS_VRAMLOST;
	if (context->is_guilty)
		flags |= AMDGPU_CTX_QUERY2_FLAGS_GUILTY;
	memset(args, 0, sizeof(*args));
	args->out.state.flags = flags;
}

/* amdgpu_ctx_ioctl() */
int sim_ioctl_ctx(const struct sim_fd *client, union drm_amdgpu_ctx *args)
{
	struct sim_context *context;

	if (args->in.op == AMDGPU_CTX_OP_ALLOC_CTX)
		return ctx_alloc(client, args);
	context = context_of(client, args->in.ctx_id);
	if (!context)
		return -EINVAL;
	switch (args->in.op) {
	case AMDGPU_CTX_OP_FREE_CTX:
		context->owner = 0;
		memset(args, 0, sizeof(*args));
		return 0;
	case AMDGPU_CTX_OP_QUERY_STATE:
		ctx_query(client, context, args);
		return 0;
	case AMDGPU_CTX_OP_QUERY_STATE2:
		ctx_query2(client, context, args);
		return 0;
	case AMDGPU_CTX_OP_GET_STABLE_PSTATE:
	case AMDGPU_CTX_OP_SET_STABLE_PSTATE:
		memset(args, 0, sizeof(*args));
		return 0;
	default:
		return -EINVAL;
	}
}

/*
 * Use the buffers of an array of struct drm_amdgpu_bo_list_entry, in the submission that follows
 * under the same lock, or in those of @list, if not NULL.
 * Return: 0 or -ENOENT.
 */
static int use_entries(const struct sim_fd *client, uint64_t pointer, uint32_t n_entries,
		       uint32_t entry_bytes, struct sim_bo_list *list)
{
	const char *at = (const char *)(uintptr_t)pointer;

	for (uint32_t i = 0; i < n_entries; i++) {
		struct drm_amdgpu_bo_list_entry entry = {0};
		struct sim_object *object;

		memcpy(&entry, at + (size_t)i * entry_bytes,
		       entry_bytes < sizeof(entry) ? entry_bytes : sizeof(entry));
		object = sim_object_of(client, entry.bo_handle);
		if (!object)
			return -ENOENT;
		sim_object_use(client->card, object);
		if (!list)
			object->job = client->card->last_job + 1;
		else if (list->n_objects < SIM_MAX_LISTED)
			list->objects[list->n_objects++] =
				(uint32_t)(object - client->card->objects);
	}
	return 0;
}

/*
 * amdgpu_bo_list_ioctl(). Buffers of a list count as used when the list is made, not at each
 * submission that names it: Mesa makes a list for each submission.
 */
int sim_ioctl_bo_list(const struct sim_fd *client, union drm_amdgpu_bo_list *args)
{
	struct drm_amdgpu_bo_list_in in = args->in;
	struct sim_bo_list list = {.owner = client->slot + 1};
	struct sim_card *card = client->card;
	uint32_t at;
	int r;

	if (in.operation == AMDGPU_BO_LIST_OP_DESTROY) {
		if (in.list_handle && in.list_handle <= card->n_bo_lists &&
		    card->bo_lists[in.list_handle - 1].owner == client->slot + 1)
			card->bo_lists[in.list_handle - 1].owner = 0;
		memset(args, 0, sizeof(*args));
		return 0;
	}
	if (in.operation != AMDGPU_BO_LIST_OP_CREATE && in.operation != AMDGPU_BO_LIST_OP_UPDATE)
		return -EINVAL;
	r = use_entries(client, in.bo_info_ptr, in.bo_number, in.bo_info_size, &list);
	if (r)
		return r;
	if (in.operation == AMDGPU_BO_LIST_OP_UPDATE) {
		memset(args, 0, sizeof(*args));
		return 0;
	}
	for (at = 0; at < card->n_bo_lists && card->bo_lists[at].owner; at++)
		;
	if (at == SIM_MAX_BO_LISTS)
		return -ENOMEM;
	if (at == card->n_bo_lists)
		card->n_bo_lists++;
	card->bo_lists[at] = list;
	memset(args, 0, sizeof(*args));
	args->out.list_handle = at + 1;
	return 0;
}

/* amdgpu_cs_p1_ib() and amdgpu_ctx_get_entity(). */
static int check_ib(const struct sim_fd *client, const struct drm_amdgpu_cs_chunk *chunk,
		    struct sim_job *job)
{
	struct drm_amdgpu_cs_chunk_ib ib;

	if (chunk->length_dw < sizeof(ib) / 4)
		return -EINVAL;
	memcpy(&ib, (void *)(uintptr_t)chunk->chunk_data, sizeof(ib));
	if (ib.ip_type > AMDGPU_HW_IP_DMA || ib.ip_instance)
		return -EINVAL;
	if (ib.ring >= (ib.ip_type == AMDGPU_HW_IP_GFX ? 1u : 4u))
		return -EINVAL;
	job->engine = ib.ip_type;
	if (client->card->group_ns > 0 && ib.ip_type != AMDGPU_HW_IP_DMA)
		job->work_ns += client->card->group_ns *
				sim_ib_groups(client->card, client->slot, ib.va_start, ib.ib_bytes);
	return 0;
}

static int check_user_fence(const struct sim_fd *client, const struct drm_amdgpu_cs_chunk *chunk,
			    struct sim_job *job)
{
	struct drm_amdgpu_cs_chunk_fence fence;
	struct sim_object *object;

	if (chunk->length_dw < sizeof(fence) / 4)
		return -EINVAL;
	memcpy(&fence, (void *)(uintptr_t)chunk->chunk_data, sizeof(fence));
	object = sim_object_of(client, fence.handle);
	/* amdgpu_cs_p1_user_fence(): one page, with room for the value. */
	if (!object || object->kind != SIM_OBJECT_MEMORY || object->bytes != SIM_PAGE_BYTES ||
	    fence.offset + 8ull > object->bytes)
		return -EINVAL;
	job->fence_object = object->id;
	job->fence_offset = fence.offset;
	return 0;
}

static int use_bo_handles(const struct sim_fd *client, const struct drm_amdgpu_cs_chunk *chunk)
{
	struct drm_amdgpu_bo_list_in in;

	if (chunk->length_dw < sizeof(in) / 4)
		return -EINVAL;
	memcpy(&in, (void *)(uintptr_t)chunk->chunk_data, sizeof(in));
	return use_entries(client, in.bo_info_ptr, in.bo_number, in.bo_info_size, NULL);
}

/* Note that the next submission uses the buffers of a list, as far as the list remembers them. */
static void use_list(struct sim_card *card, uint32_t handle)
{
	const struct sim_bo_list *list = &card->bo_lists[handle - 1];

	for (uint32_t i = 0; i < list->n_objects; i++)
		card->objects[list->objects[i]].job = card->last_job + 1;
}

/* Call sim_syncobj_wait_for() or _will_signal() for each syncobj of a chunk. */
static int for_syncobjs(const struct sim_fd *client, const struct drm_amdgpu_cs_chunk *chunk,
			bool is_timeline, struct sim_job *job,
			int (*function)(const struct sim_fd *, uint32_t, uint64_t,
					struct sim_job *))
{
	size_t entry_bytes = is_timeline ? sizeof(struct drm_amdgpu_cs_chunk_syncobj)
					 : sizeof(struct drm_amdgpu_cs_chunk_sem);
	const char *at = (const char *)(uintptr_t)chunk->chunk_data;
	int r = 0;

	for (size_t i = 0; i < chunk->length_dw * 4ull / entry_bytes && !r; i++) {
		struct drm_amdgpu_cs_chunk_syncobj entry = {0};

		memcpy(&entry, at + i * entry_bytes, entry_bytes);
		r = function(client, entry.handle, is_timeline ? entry.point : 0, job);
	}
	return r;
}

static int check_dependencies(const struct sim_fd *client, const struct drm_amdgpu_cs_chunk *chunk,
			      struct sim_job *job)
{
	const struct drm_amdgpu_cs_chunk_dep *dep = (void *)(uintptr_t)chunk->chunk_data;
	int r = 0;

	for (size_t i = 0; i < chunk->length_dw * 4ull / sizeof(*dep) && !r; i++) {
		if (!context_of(client, dep[i].ctx_id))
			return -EINVAL;
		r = sim_job_wait_for(job,
				     sim_job_of_seq(client->card, client->slot, dep[i].handle));
	}
	return r;
}

/* Check everything that can reject the submission. */
static int check_chunk(const struct sim_fd *client, const struct drm_amdgpu_cs_chunk *chunk,
		       struct sim_job *job)
{
	switch (chunk->chunk_id) {
	case AMDGPU_CHUNK_ID_IB:
		return check_ib(client, chunk, job);
	case AMDGPU_CHUNK_ID_FENCE:
		return check_user_fence(client, chunk, job);
	case AMDGPU_CHUNK_ID_BO_HANDLES:
		return use_bo_handles(client, chunk);
	case AMDGPU_CHUNK_ID_DEPENDENCIES:
	case AMDGPU_CHUNK_ID_SCHEDULED_DEPENDENCIES:
		return check_dependencies(client, chunk, job);
	case AMDGPU_CHUNK_ID_SYNCOBJ_IN:
		return for_syncobjs(client, chunk, false, job, sim_syncobj_wait_for);
	case AMDGPU_CHUNK_ID_SYNCOBJ_TIMELINE_WAIT:
		return for_syncobjs(client, chunk, true, job, sim_syncobj_wait_for);
	case AMDGPU_CHUNK_ID_SYNCOBJ_OUT:
		return for_syncobjs(client, chunk, false, job, sim_syncobj_will_signal);
	case AMDGPU_CHUNK_ID_SYNCOBJ_TIMELINE_SIGNAL:
		return for_syncobjs(client, chunk, true, job, sim_syncobj_will_signal);
	default:
		return -EINVAL;
	}
}

/*
 * Use the buffers that belong to every submission without being listed:
 * AMDGPU_GEM_CREATE_VM_ALWAYS_VALID.
 */
static void use_always_valid(const struct sim_fd *client)
{
	struct sim_card *card = client->card;

	for (uint32_t i = 0; i < card->n_handles; i++) {
		struct sim_object *object = &card->objects[card->handles[i].object];

		if (card->handles[i].owner == client->slot + 1 &&
		    object->flags & AMDGPU_GEM_CREATE_VM_ALWAYS_VALID)
			sim_object_use(card, object);
	}
}

/*
 * amdgpu_cs_parser_init(), amdgpu_cs_pass1(): "skip guilty context job" is -ECANCELED. So is a
 * submission to a context that is older than the last loss of VRAM.
 */
static int check_context(const struct sim_card *card, const struct sim_context *context)
{
	if (context->is_guilty || context->vram_lost_counter != card->vram_lost_counter)
		return -ECANCELED;
	return 0;
}

/* amdgpu_cs_ioctl() */
int sim_ioctl_cs(const struct sim_fd *client, union drm_amdgpu_cs *args)
{
	struct sim_client *state = &client->card->clients[client->slot];
	struct sim_context *context;
	const uint64_t *chunks = (const uint64_t *)(uintptr_t)args->in.chunks;
	struct sim_job job = {.engine = NO_ENGINE, .work_ns = client->card->job_ns};
	uint32_t n_chunks = args->in.num_chunks;
	int r;

	r = sim_engine_await_room(client);
	if (r)
		return r;
	/* Another thread may have freed it meanwhile. */
	context = context_of(client, args->in.ctx_id);
	if (!context || !n_chunks)
		return -EINVAL;
	r = check_context(client->card, context);
	if (r)
		return r;
	if (args->in.bo_list_handle &&
	    (args->in.bo_list_handle > client->card->n_bo_lists ||
	     client->card->bo_lists[args->in.bo_list_handle - 1].owner != client->slot + 1))
		return -ENOENT;

	for (uint32_t i = 0; i < n_chunks; i++) {
		r = check_chunk(client, (void *)(uintptr_t)chunks[i], &job);
		if (r)
			return r;
	}
	if (job.engine == NO_ENGINE)
		return -EINVAL;
	use_always_valid(client);
	if (args->in.bo_list_handle)
		use_list(client->card, args->in.bo_list_handle);
	job.owner = client->slot + 1;
	job.context = args->in.ctx_id - 1;
	job.seq = ++state->seq;
	sim_engine_submit(client, &job);
	memset(args, 0, sizeof(*args));
	args->out.handle = job.seq;
	return 0;
}

/*
 * amdgpu_cs_wait_ioctl(), amdgpu_ctx_get_fence(). A context's submissions to an engine end in
 * order; here sequence numbers are the client's.
 */
int sim_ioctl_wait_cs(const struct sim_fd *client, union drm_amdgpu_wait_cs *args)
{
	const struct drm_amdgpu_wait_cs_in in = args->in;
	const struct sim_client *state = &client->card->clients[client->slot];
	const uint64_t seq = in.handle == ~0ull ? state->seq : in.handle;
	int r = 0;

	if (!context_of(client, in.ctx_id))
		return -EINVAL;
	if (seq > state->seq)
		return -EINVAL;
	while (!r && sim_job_of_seq(client->card, client->slot, seq))
		r = sim_engine_wait(client, deadline_of(in.timeout));
	if (r && r != -ETIME)
		return r;
	memset(args, 0, sizeof(*args));
	args->out.status = r == -ETIME;
	return 0;
}

/* amdgpu_cs_wait_fences_ioctl() */
int sim_ioctl_wait_fences(const struct sim_fd *client, union drm_amdgpu_wait_fences *args)
{
	const struct drm_amdgpu_wait_fences_in in = args->in;
	const struct drm_amdgpu_fence *fences = (void *)(uintptr_t)in.fences;
	uint32_t n_done, first = 0;
	int r = 0;

	for (uint32_t i = 0; i < in.fence_count; i++) {
		if (!context_of(client, fences[i].ctx_id))
			return -EINVAL;
	}
	do {
		n_done = 0;
		for (uint32_t i = in.fence_count; i--;) {
			if (sim_job_of_seq(client->card, client->slot, fences[i].seq_no))
				continue;
			n_done++;
			first = i;
		}
		if (in.wait_all ? n_done == in.fence_count : n_done > 0)
			break;
		r = sim_engine_wait(client, deadline_of(in.timeout_ns));
	} while (!r);
	if (r && r != -ETIME)
		return r;
	memset(args, 0, sizeof(*args));
	args->out.status = r != -ETIME;
	args->out.first_signaled = first;
	return 0;
}

/* amdgpu_cs_fence_to_handle_ioctl(). A sync file is made once the fence has signalled. */
int sim_ioctl_fence_to_handle(const struct sim_fd *client, union drm_amdgpu_fence_to_handle *args)
{
	const struct drm_amdgpu_fence fence = args->in.fence;
	struct sim_card *card = client->card;
	uint32_t handle;
	int r;

	if (!context_of(client, fence.ctx_id))
		return -EINVAL;
	switch (args->in.what) {
	case AMDGPU_FENCE_TO_HANDLE_GET_SYNCOBJ:
		r = sim_syncobj_create(client, true, &handle);
		if (r)
			return r;
		card->syncobjs[handle - 1].job = sim_job_of_seq(card, client->slot, fence.seq_no);
		break;
	case AMDGPU_FENCE_TO_HANDLE_GET_SYNC_FILE_FD:
		while (sim_job_of_seq(card, client->slot, fence.seq_no)) {
			r = sim_engine_wait(client, INT64_MAX);
			if (r)
				return r;
		}
		r = sim_sync_file();
		if (r < 0)
			return r;
		handle = (uint32_t)r;
		break;
	default:
		return -EINVAL;
	}
	memset(args, 0, sizeof(*args));
	args->out.handle = handle;
	return 0;
}

/* SPDX-License-Identifier: MIT */
/*
 * Contexts and submissions: drivers/gpu/drm/amd/amdgpu/amdgpu_ctx.c, amdgpu_cs.c, amdgpu_bo_list.c
 *
 * The simulator checks a submission as the kernel does and marks the listed buffers as used. The
 * submission is complete when the ioctl returns: its fence has signalled, its user fence is
 * written, its engine time is counted. Nothing is executed. A comment above a function names the
 * functions of the kernel that it imitates.
 */
#include "ioctl.h"
#include "memory.h"
#include "sys.h"
#include <errno.h>
#include <string.h>

/* A submission that is being checked */
struct job {
	int engine; /* 0 gfx, 1 compute, 2 dma; -1: no IB seen */
	uint32_t fence_handle;
	uint32_t fence_offset;
};

static struct sim_context *context_of(const struct sim_fd *client, uint32_t id)
{
	struct sim_card *card = client->card;

	if (!id || id > card->n_contexts || card->contexts[id - 1].owner != client->slot + 1)
		return NULL;
	return &card->contexts[id - 1];
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
 * Use the buffers of an array of struct drm_amdgpu_bo_list_entry.
 * Return: 0 or -ENOENT.
 */
static int use_entries(const struct sim_fd *client, uint64_t pointer, uint32_t n_entries,
		       uint32_t entry_bytes)
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
	r = use_entries(client, in.bo_info_ptr, in.bo_number, in.bo_info_size);
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
	card->bo_lists[at].owner = client->slot + 1;
	memset(args, 0, sizeof(*args));
	args->out.list_handle = at + 1;
	return 0;
}

/* amdgpu_cs_p1_ib() and amdgpu_ctx_get_entity(). */
static int check_ib(const struct drm_amdgpu_cs_chunk *chunk, struct job *job)
{
	struct drm_amdgpu_cs_chunk_ib ib;

	if (chunk->length_dw < sizeof(ib) / 4)
		return -EINVAL;
	memcpy(&ib, (void *)(uintptr_t)chunk->chunk_data, sizeof(ib));
	if (ib.ip_type > AMDGPU_HW_IP_DMA || ib.ip_instance)
		return -EINVAL;
	if (ib.ring >= (ib.ip_type == AMDGPU_HW_IP_GFX ? 1u : 4u))
		return -EINVAL;
	job->engine = (int)ib.ip_type;
	return 0;
}

static int check_user_fence(const struct sim_fd *client, const struct drm_amdgpu_cs_chunk *chunk,
			    struct job *job)
{
	struct drm_amdgpu_cs_chunk_fence fence;
	struct sim_object *object;

	if (chunk->length_dw < sizeof(fence) / 4)
		return -EINVAL;
	memcpy(&fence, (void *)(uintptr_t)chunk->chunk_data, sizeof(fence));
	object = sim_object_of(client, fence.handle);
	/* amdgpu_cs_p1_user_fence(): one page, with room for the value. */
	if (!object || object->bytes != SIM_PAGE_BYTES || fence.offset + 8ull > object->bytes)
		return -EINVAL;
	job->fence_handle = fence.handle;
	job->fence_offset = fence.offset;
	return 0;
}

static int use_bo_handles(const struct sim_fd *client, const struct drm_amdgpu_cs_chunk *chunk)
{
	struct drm_amdgpu_bo_list_in in;

	if (chunk->length_dw < sizeof(in) / 4)
		return -EINVAL;
	memcpy(&in, (void *)(uintptr_t)chunk->chunk_data, sizeof(in));
	return use_entries(client, in.bo_info_ptr, in.bo_number, in.bo_info_size);
}

/* Call sim_syncobj_check() or _signal() for each syncobj of a chunk. */
static int for_syncobjs(const struct sim_fd *client, const struct drm_amdgpu_cs_chunk *chunk,
			bool is_timeline,
			int (*function)(const struct sim_fd *, uint32_t, uint64_t))
{
	size_t entry_bytes = is_timeline ? sizeof(struct drm_amdgpu_cs_chunk_syncobj)
					 : sizeof(struct drm_amdgpu_cs_chunk_sem);
	const char *at = (const char *)(uintptr_t)chunk->chunk_data;
	int r = 0;

	for (size_t i = 0; i < chunk->length_dw * 4ull / entry_bytes && !r; i++) {
		struct drm_amdgpu_cs_chunk_syncobj entry = {0};

		memcpy(&entry, at + i * entry_bytes, entry_bytes);
		r = function(client, entry.handle, is_timeline ? entry.point : 0);
	}
	return r;
}

static int check_dependencies(const struct sim_fd *client, const struct drm_amdgpu_cs_chunk *chunk)
{
	const struct drm_amdgpu_cs_chunk_dep *dep = (void *)(uintptr_t)chunk->chunk_data;

	for (size_t i = 0; i < chunk->length_dw * 4ull / sizeof(*dep); i++) {
		if (!context_of(client, dep[i].ctx_id))
			return -EINVAL;
	}
	return 0;
}

/* Check everything that can reject the submission. */
static int check_chunk(const struct sim_fd *client, const struct drm_amdgpu_cs_chunk *chunk,
		       struct job *job)
{
	switch (chunk->chunk_id) {
	case AMDGPU_CHUNK_ID_IB:
		return check_ib(chunk, job);
	case AMDGPU_CHUNK_ID_FENCE:
		return check_user_fence(client, chunk, job);
	case AMDGPU_CHUNK_ID_BO_HANDLES:
		return use_bo_handles(client, chunk);
	case AMDGPU_CHUNK_ID_DEPENDENCIES:
	case AMDGPU_CHUNK_ID_SCHEDULED_DEPENDENCIES:
		return check_dependencies(client, chunk);
	case AMDGPU_CHUNK_ID_SYNCOBJ_IN:
		return for_syncobjs(client, chunk, false, sim_syncobj_check);
	case AMDGPU_CHUNK_ID_SYNCOBJ_TIMELINE_WAIT:
		return for_syncobjs(client, chunk, true, sim_syncobj_check);
	case AMDGPU_CHUNK_ID_SYNCOBJ_OUT:
	case AMDGPU_CHUNK_ID_SYNCOBJ_TIMELINE_SIGNAL:
		return 0;
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

/* amdgpu_ring.h: write the fence's number to the submitter's address. */
static int write_user_fence(const struct sim_fd *client, const struct job *job, uint64_t seq)
{
	struct sim_object *object = sim_object_of(client, job->fence_handle);
	char name[64];
	int fd, r = 0;

	if (!object || object->kind != SIM_OBJECT_MEMORY)
		return -EINVAL;
	sim_object_file_name(client->card, object->id, name);
	fd = sim_open_file(name, O_RDWR);
	if (fd < 0)
		return fd;
	if (pwrite(fd, &seq, sizeof(seq), job->fence_offset) < 0)
		r = -errno;
	close(fd);
	return r;
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
	struct sim_context *context = context_of(client, args->in.ctx_id);
	struct sim_client *state = &client->card->clients[client->slot];
	const uint64_t *chunks = (const uint64_t *)(uintptr_t)args->in.chunks;
	struct job job = {.engine = -1};
	uint32_t n_chunks = args->in.num_chunks;
	int r;

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
	if (job.engine < 0)
		return -EINVAL;
	use_always_valid(client);

	for (uint32_t i = 0; i < n_chunks && !r; i++) {
		const struct drm_amdgpu_cs_chunk *chunk = (void *)(uintptr_t)chunks[i];

		if (chunk->chunk_id == AMDGPU_CHUNK_ID_SYNCOBJ_OUT)
			r = for_syncobjs(client, chunk, false, sim_syncobj_signal);
		else if (chunk->chunk_id == AMDGPU_CHUNK_ID_SYNCOBJ_TIMELINE_SIGNAL)
			r = for_syncobjs(client, chunk, true, sim_syncobj_signal);
	}
	if (r)
		return r;
	state->engine_ns[job.engine] += client->card->job_ns;
	state->seq++;
	if (job.fence_handle) {
		r = write_user_fence(client, &job, state->seq);
		if (r)
			return r;
	}
	memset(args, 0, sizeof(*args));
	args->out.handle = state->seq;
	return 0;
}

/* amdgpu_cs_wait_ioctl() */
int sim_ioctl_wait_cs(const struct sim_fd *client, union drm_amdgpu_wait_cs *args)
{
	const struct sim_client *state = &client->card->clients[client->slot];

	if (!context_of(client, args->in.ctx_id))
		return -EINVAL;
	if (args->in.handle != ~0ull && args->in.handle > state->seq)
		return -EINVAL;
	memset(args, 0, sizeof(*args));
	return 0;
}

/* amdgpu_cs_wait_fences_ioctl() */
int sim_ioctl_wait_fences(const struct sim_fd *client, union drm_amdgpu_wait_fences *args)
{
	const struct drm_amdgpu_fence *fences = (void *)(uintptr_t)args->in.fences;

	for (uint32_t i = 0; i < args->in.fence_count; i++) {
		if (!context_of(client, fences[i].ctx_id))
			return -EINVAL;
	}
	memset(args, 0, sizeof(*args));
	args->out.status = 1;
	return 0;
}

/* amdgpu_cs_fence_to_handle_ioctl() */
int sim_ioctl_fence_to_handle(const struct sim_fd *client, union drm_amdgpu_fence_to_handle *args)
{
	uint32_t handle;
	int r;

	if (!context_of(client, args->in.fence.ctx_id))
		return -EINVAL;
	switch (args->in.what) {
	case AMDGPU_FENCE_TO_HANDLE_GET_SYNCOBJ:
		r = sim_syncobj_create(client, true, &handle);
		if (r)
			return r;
		break;
	case AMDGPU_FENCE_TO_HANDLE_GET_SYNC_FILE_FD:
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

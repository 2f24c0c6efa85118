#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Parts of torture-client
 *
 * torture-device.c makes the device, buffers and pipelines that all cases use. torture-record.c
 * fills one command buffer; it knows what is bound and which memory needs a barrier.
 * torture-submit.c hands command buffers to queues. torture-case.c chooses which command buffers a
 * case has, and when each is recorded, submitted, reset and freed.
 *
 * Every choice is drawn from the case's seed alone: a device without an optional feature gets other
 * commands with the same result.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <volk.h>

enum {
	TORTURE_BUFFERS = 6,
	TORTURE_REGIONS = 8, /* of a buffer */
	TORTURE_REGION_BYTES = 4096,
	TORTURE_BUFFER_BYTES = TORTURE_REGIONS * TORTURE_REGION_BYTES,
	TORTURE_REGION_WORDS = TORTURE_REGION_BYTES / 4,
	TORTURE_SUMS = 8, /* windows of the buffer of sums */
	TORTURE_SUM_BYTES = 256,
	TORTURE_ARGUMENTS = 16, /* indirect dispatches */
	TORTURE_ARGUMENT_BYTES = 16,
	TORTURE_MOST_INDIRECT = 8, /* workgroups in each dimension */
	TORTURE_RESULTS = 64,      /* copied results of queries */
	TORTURE_PREDICATES = 8,
	TORTURE_IMAGE_SIDE = 32,
	TORTURE_TARGET_SIDE = 16,
	TORTURE_MOST_QUEUES = 2,
	TORTURE_MOST_SETS = 3,
};

/* Memory as bits: a bit for each region of each buffer, then these. */
#define TORTURE_BIT_SUMS      48
#define TORTURE_BIT_ARGUMENTS 56
#define TORTURE_BIT_RESULTS   57
#define TORTURE_BIT_IMAGE     58
#define TORTURE_BIT_TARGET    59

#define TORTURE_FEATURES(X)                                               \
	X(ONE_TIME, "one-time command buffers")                           \
	X(REUSED, "command buffers submitted again")                      \
	X(SIMULTANEOUS, "simultaneous use")                               \
	X(TWICE, "a command buffer twice in one call")                    \
	X(MANY_COMMANDS, "several command buffers in a submission")       \
	X(MANY_SUBMISSIONS, "several submissions in a call")              \
	X(NO_COMMANDS, "submissions without command buffers")             \
	X(SUBMIT, "vkQueueSubmit")                                        \
	X(SUBMIT2, "vkQueueSubmit2")                                      \
	X(SECONDARY, "secondary command buffers")                         \
	X(SECONDARIES, "several in one vkCmdExecuteCommands")             \
	X(RESET_COMMANDS, "vkResetCommandBuffer")                         \
	X(RESET_POOL, "vkResetCommandPool")                               \
	X(RESET_BY_BEGIN, "reset by vkBeginCommandBuffer")                \
	X(FREE_COMMANDS, "vkFreeCommandBuffers")                          \
	X(DESTROY_POOL, "vkDestroyCommandPool with command buffers")      \
	X(ABANDON, "recorded and reset without submission")               \
	X(EMPTY, "empty command buffers")                                 \
	X(OWN_PIPELINE, "pipelines of the case")                          \
	X(PIPELINE, "vkCmdBindPipeline")                                  \
	X(SAME_PIPELINE, "the same pipeline bound again")                 \
	X(KEPT_SETS, "dispatches without new bindings")                   \
	X(SOME_SETS, "some sets bound again")                             \
	X(SETS_TOGETHER, "sets bound together")                           \
	X(SETS_BACKWARDS, "sets bound in another order")                  \
	X(OFFSETS, "dynamic offsets")                                     \
	X(OFFSETS_TOGETHER, "dynamic offsets of several sets")            \
	X(PUSH_SET, "push descriptors")                                   \
	X(PUSH_TEMPLATE, "push descriptors by a template")                \
	X(PUSH_PART, "push descriptors, one of two")                      \
	X(PUSH_FIRST, "push constants before the pipeline")               \
	X(PUSH_RANGES, "push constants in several ranges")                \
	X(DISPATCH, "vkCmdDispatch")                                      \
	X(DISPATCH_0, "no workgroups in a dimension")                     \
	X(DISPATCH_3D, "three dimensions")                                \
	X(MANY_DISPATCHES, "30 dispatches or more in a command buffer")   \
	X(DISPATCH_LARGE, "1000 workgroups or more")                      \
	X(DISPATCH_BASE, "vkCmdDispatchBase")                             \
	X(INDIRECT, "vkCmdDispatchIndirect")                              \
	X(INDIRECT_WRITTEN, "arguments written by a dispatch")            \
	X(NO_BARRIER, "dispatches without a barrier between")             \
	X(COPY, "vkCmdCopyBuffer")                                        \
	X(FILL, "vkCmdFillBuffer")                                        \
	X(UPDATE, "vkCmdUpdateBuffer")                                    \
	X(MEMORY_BARRIER, "memory barriers")                              \
	X(BUFFER_BARRIER, "buffer barriers")                              \
	X(BARRIER2, "vkCmdPipelineBarrier2")                              \
	X(EVENT, "events")                                                \
	X(EVENT_ACROSS, "events across command buffers")                  \
	X(EVENT_HOST, "events that the host sets")                        \
	X(EVENT2, "vkCmdSetEvent2")                                       \
	X(TIMESTAMP, "timestamps")                                        \
	X(STATISTICS, "pipeline statistics")                              \
	X(CONDITIONAL, "conditional rendering")                           \
	X(LABEL, "debug labels")                                          \
	X(CLEAR_IMAGE, "vkCmdClearColorImage")                            \
	X(IMAGE, "images written by dispatches")                          \
	X(RENDER, "render passes")                                        \
	X(RENDER_SECONDARY, "secondary command buffers in render passes") \
	X(DRAW, "triangles")                                              \
	X(OTHER_POINT, "sets bound for graphics")                         \
	X(QUEUES, "several queues")                                       \
	X(BINARY, "binary semaphores")                                    \
	X(TIMELINE, "timeline semaphores")                                \
	X(LATE, "waits before signals")                                   \
	X(FENCE, "fences")                                                \
	X(QUEUE_IDLE, "vkQueueWaitIdle")                                  \
	X(DEVICE_IDLE, "vkDeviceWaitIdle")                                \
	X(WAIT_TIMELINE, "vkWaitSemaphores")                              \
	X(POLL, "polling")                                                \
	X(HOST_READ, "the host reads between")                            \
	X(HOST_WRITE, "the host writes between")                          \
	X(THREADS, "threads")

enum torture_feature {
#define X(name, text) TORTURE_##name,
	TORTURE_FEATURES(X)
#undef X
		TORTURE_N_FEATURES
};

enum torture_set_kind {
	TORTURE_SET_PAIR,
	TORTURE_SET_DYNAMIC,
	TORTURE_SET_PUSHED,
	TORTURE_SET_SUMS,
	TORTURE_SET_IMAGE,
	TORTURE_N_SET_KINDS,
};

enum torture_use { TORTURE_STEPS, TORTURE_WRITES_ARGUMENTS, TORTURE_STEPS_IMAGE };

struct torture_random {
	uint64_t state;
};

struct torture_layout {
	unsigned int n_sets;
	enum torture_set_kind kinds[TORTURE_MOST_SETS];
	uint32_t push_words; /* 0: dispatches leave the words of other layouts as they are */
	VkPipelineLayout handle;
};

struct torture_pipeline {
	VkPipeline handle;
	unsigned int layout; /* index of torture.layouts */
	enum torture_use use;
	bool has_base;
};

struct torture_buffer {
	VkBuffer handle;
	VkDeviceMemory memory;
	uint32_t *words;
	uint32_t n_words;
};

/* Regions of a buffer. */
struct torture_window {
	unsigned int buffer, first, n;
};

enum { TORTURE_N_LAYOUTS = 7, TORTURE_MOST_PIPELINES = 24 };

struct torture_device {
	VkInstance instance;
	VkPhysicalDevice physical;
	VkDevice handle;
	VkQueue queues[TORTURE_MOST_QUEUES];
	unsigned int n_queues;
	uint32_t family;
	bool has_graphics, has_submit2, has_push_sets, has_conditional, has_statistics, has_labels;
	bool may_drop_layouts; /* while pipelines use them: maintenance4 */
	bool has_timestamps;
	bool keeps_base;   /* An indirect dispatch takes the base of the dispatch before it. */
	bool is_validated; /* Validation layers are told nothing that they take for a mistake. */

	VkDescriptorSetLayout set_layouts[TORTURE_N_SET_KINDS];
	struct torture_layout layouts[TORTURE_N_LAYOUTS];
	struct torture_pipeline pipelines[TORTURE_MOST_PIPELINES];
	unsigned int n_pipelines;

	struct torture_buffer buffers[TORTURE_BUFFERS];
	struct torture_buffer sums, arguments, results, predicates;
	struct torture_buffer picture; /* the image, at the end of a case */
	VkImage image, target;
	VkDeviceMemory image_memory, target_memory;
	VkImageView image_view, target_view;
	VkRenderPass pass;
	VkFramebuffer frame;
	VkPipelineLayout graphics_layout;
	VkPipeline graphics;
	VkDescriptorUpdateTemplate push_template;

	VkDescriptorPool pool;
	VkDescriptorSet sum_sets[TORTURE_SUMS];
	VkDescriptorSet argument_set, image_set;
};

extern struct torture_device torture;

/* Exit with a sentence that names the call. */
void torture_expect(VkResult result, const char *what);
#define EXPECT(call) torture_expect(call, #call)

/* Note that the case uses a feature. Any thread may call it. */
void torture_count(enum torture_feature feature);

uint64_t torture_draw(struct torture_random *random);
uint32_t torture_below(struct torture_random *random, uint32_t n);
bool torture_chance(struct torture_random *random, uint32_t one_of);

/*
 * device: with @core, optional features are not used although the device has them. The caller may
 * set torture.is_validated before.
 */
void torture_device_init(bool core);
void torture_device_deinit(void);
uint64_t torture_window_bits(const struct torture_window *window);
void torture_write_pair(VkDescriptorSet set, VkDescriptorType type,
			const struct torture_window windows[2]);

/* Compile two pipelines whose workgroup sizes are drawn. The caller destroys them. */
void torture_make_pipelines(struct torture_random *random, struct torture_pipeline ret[2]);

enum {
	TORTURE_PAIRS = 6,
	TORTURE_DYNAMICS = 4,
	TORTURE_EVENTS = 48,
	TORTURE_QUERIES = 32,
	TORTURE_N_OWN = 2,
	TORTURE_MOST_PUSHED = 400,
};

/* A part of the target, and its value after a clear. */
struct torture_square {
	VkRect2D rect;
	uint32_t value;
};

/* Objects that the command buffers of one thread refer to. They live until the case ends. */
struct torture_kit {
	VkDescriptorPool pool;
	VkDescriptorSet pair_sets[TORTURE_PAIRS], dynamic_sets[TORTURE_DYNAMICS];
	struct torture_window pairs[TORTURE_PAIRS][2], dynamics[TORTURE_DYNAMICS][2];
	struct torture_pipeline own[TORTURE_N_OWN];
	unsigned int n_own, n_pushed;
	VkEvent events[TORTURE_EVENTS];
	unsigned int n_events;
	VkQueryPool times, statistics;
	unsigned int n_times, n_statistics, first_result, n_results;
	VkCommandPool square_pool;
	VkCommandBuffer square_commands; /* a secondary that clears the square in a pass */
	struct torture_square square;
};

void torture_kit_init(struct torture_kit *kit, struct torture_random *random, unsigned int number,
		      unsigned int n_kits);
void torture_kit_deinit(struct torture_kit *kit);

/* A set that is bound, or would be. */
struct torture_bound {
	bool valid, is_arguments;
	unsigned int layout;
	VkDescriptorSet set;
	struct torture_window windows[2];
	uint32_t offsets[2]; /* bytes */
	uint64_t reads, writes;
};

enum torture_opening { TORTURE_OPEN_BARRIER, TORTURE_OPEN_EVENT, TORTURE_OPEN_HOST_EVENT };

/* The way in which a command buffer is recorded. */
struct torture_recording {
	struct torture_random *random;
	struct torture_kit *kit;
	VkCommandBuffer commands;
	bool is_secondary;
	unsigned int n_operations;
	const VkCommandBuffer *secondaries;
	unsigned int n_secondaries;
	bool may_repeat; /* The secondaries allow simultaneous use. */
	enum torture_opening opening;
	VkEvent awaited, set_at_end;
};

/* Record between vkBeginCommandBuffer() and vkEndCommandBuffer(), which the caller calls. */
void torture_record(const struct torture_recording *recording);

enum { TORTURE_PUSHED_GRAPHICS = 99 };

/* A command buffer while it is recorded. */
struct torture_recorder {
	struct torture_recording about;
	struct torture_random *random;
	VkCommandBuffer commands;

	/* Accesses that no barrier follows; the old ones precede the event's signal. */
	uint64_t reads, writes, old_reads, old_writes;
	VkEvent event; /* signalled, and not yet awaited; or none */
	bool event_is_2, event_is_broad;
	unsigned int n_dispatches; /* since the last barrier */
	unsigned int n_all_dispatches;

	const struct torture_pipeline *pipeline; /* bound, or NULL */
	struct torture_bound bound[TORTURE_MOST_SETS];
	uint32_t push_words; /* of the layout that pushed them, or TORTURE_PUSHED_GRAPHICS */
	uint32_t pushed;     /* valid words, as bits */
	bool has_new_words;  /* that no dispatch has followed */
	uint32_t strides[2]; /* as pushed */

	bool has_triangle;
	VkRect2D scissor;
	uint32_t triangle[2]; /* push constants */

	bool has_condition, skips; /* The dispatches of a condition that is false are left out. */
	bool has_query;
	unsigned int query, n_labels;
	uint32_t used_secondaries; /* bits */
	bool has_written_arguments;
	bool has_base; /* the last dispatch has one, or may have */
};

/* sync: barriers and events of a recorder */
void torture_sync_open(struct torture_recorder *recorder);
void torture_sync_use(struct torture_recorder *recorder, uint64_t reads, uint64_t writes);
void torture_sync_barrier(struct torture_recorder *recorder);
void torture_sync_signal(struct torture_recorder *recorder);
void torture_sync_close(struct torture_recorder *recorder);

/* dispatch: what a dispatch needs, and the dispatch */
void torture_dispatch(struct torture_recorder *recorder);
void torture_push_some(struct torture_recorder *recorder);
void torture_forget_state(struct torture_recorder *recorder);
struct torture_window torture_draw_window(struct torture_random *random);

/* transfers and sections that other parts use */
uint64_t torture_draw_region(struct torture_recorder *recorder, VkBuffer *ret_buffer,
			     VkDeviceSize *ret_offset);
void torture_copy_picture(struct torture_recorder *recorder, VkImage image, VkImageLayout layout,
			  uint32_t side, uint64_t reads);
void torture_end_sections(struct torture_recorder *recorder);

/* graphics: passes, and the state of their triangle */
void torture_graphics_init(void);
void torture_graphics_deinit(void);
void torture_graphics_make_square(struct torture_kit *kit, struct torture_random *random);
void torture_graphics_prepare(struct torture_recorder *recorder);
void torture_graphics_bind_others(struct torture_recorder *recorder);
void torture_graphics_render(struct torture_recorder *recorder);

enum { TORTURE_MOST_BINARY = 64, TORTURE_MOST_LANES = 3 };

/* The order of submissions: each lane submits in turn, and each submission follows the one before.
 */
struct torture_chain {
	pthread_mutex_t lock;
	pthread_cond_t turned;
	unsigned int turn, n_lanes;
	bool ended[TORTURE_MOST_LANES];

	VkSemaphore timeline, gate;
	uint64_t value;      /* of the timeline, once all submissions have ended */
	uint64_t gate_value; /* of the gate, which the host opens */
	VkSemaphore binaries[TORTURE_MOST_BINARY];
	unsigned int n_binaries;
	unsigned int last_queue; /* of the last submission */
	VkSemaphore last_binary; /* signalled by the last submission, or none */
	uint64_t last_value;     /* of the timeline, by the last submission, or 0 */
};

enum { TORTURE_MOST_BATCH = 3, TORTURE_MOST_COMMANDS = 5 };

/* The submissions of a call. */
struct torture_batch {
	unsigned int n;
	struct {
		VkCommandBuffer commands[TORTURE_MOST_COMMANDS];
		unsigned int n_commands;
	} submissions[TORTURE_MOST_BATCH];
	VkFence fence;
	bool keeps_queue;   /* that of the submission before */
	VkEvent host_event; /* The host sets it after the call. */
};

void torture_chain_init(struct torture_chain *chain, unsigned int n_lanes);
void torture_chain_deinit(struct torture_chain *chain);
void torture_take_turn(struct torture_chain *chain, unsigned int lane);
void torture_pass_turn(struct torture_chain *chain, unsigned int lane, bool has_ended);

/*
 * Submit; the caller has the turn.
 *
 * Return: the timeline's value once the batch has ended, or 0 if the batch does not signal it.
 */
uint64_t torture_submit(struct torture_chain *chain, struct torture_random *random,
			const struct torture_batch *batch);

/* memory: what the host does with it */
void torture_fill_memory(struct torture_random *random);
void torture_change_memory(struct torture_random *random);
uint64_t torture_hash_memory(uint64_t before);
uint64_t torture_hash_queries(uint64_t before, const struct torture_kit *kit);

/* Run a case, and return the hash of its results. */
uint64_t torture_run_case(uint64_t seed);

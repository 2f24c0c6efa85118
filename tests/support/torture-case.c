/* SPDX-License-Identifier: MIT */
/*
 * A case of torture-client
 *
 * A case has one lane, or several that run in threads of their own. A lane has command pools and
 * command buffers, and does drawn actions with them: it records, submits, waits, resets and frees
 * them. It follows the rules for their states: a command buffer that is pending is left alone, and
 * each is submitted as often as its flags allow.
 *
 * A first submission of the case prepares images and queries, and a last one makes all results
 * visible to the host, which then hashes them. Now and then the host reads and writes memory
 * between.
 */
#include <time.h>

#include "support/torture.h"

enum { N_POOLS = 2, N_COMMANDS = 6, MOST_SECONDARIES = 3 };

enum state { FRESH, READY, SPENT };

struct commands {
	VkCommandBuffer handle;
	unsigned int pool;
	VkCommandBufferUsageFlags flags;
	enum state state;
	bool is_pending, was_submitted;
	VkCommandBuffer secondaries[MOST_SECONDARIES];
	unsigned int n_secondaries;
};

struct lane {
	struct torture_chain *chain;
	unsigned int number;
	pthread_t thread;
	struct torture_random random;
	struct torture_kit kit;

	/* The command buffers of the first pool can be reset alone. */
	VkCommandPool pools[N_POOLS], shared_pool;
	VkCommandBuffer shared; /* a secondary that any command buffer may execute, or none */
	struct commands commands[N_COMMANDS];

	VkFence fence;
	bool has_fence;
	unsigned int last_queue;
	uint64_t last_value; /* of the timeline, once the last submission has ended, or 0 */
	bool wants_host_event;
	VkCommandBuffer shower; /* makes writes visible to the host; or none */
	uint64_t seen;          /* hash of what the host has read */
};

/* ---- Pools ---- */

static VkCommandPool make_pool(VkCommandPoolCreateFlags flags)
{
	const VkCommandPoolCreateInfo info = {
		.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
		.flags = flags,
		.queueFamilyIndex = torture.family,
	};
	VkCommandPool pool;

	EXPECT(vkCreateCommandPool(torture.handle, &info, NULL, &pool));
	return pool;
}

static VkCommandPool make_numbered_pool(unsigned int number)
{
	return make_pool(number == 0 ? VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT
				     : VK_COMMAND_POOL_CREATE_TRANSIENT_BIT);
}

static void allocate(VkCommandPool pool, VkCommandBufferLevel level, uint32_t n,
		     VkCommandBuffer *ret)
{
	const VkCommandBufferAllocateInfo info = {
		.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
		.commandPool = pool,
		.level = level,
		.commandBufferCount = n,
	};

	EXPECT(vkAllocateCommandBuffers(torture.handle, &info, ret));
}

static void begin(VkCommandBuffer commands, VkCommandBufferUsageFlags flags)
{
	const VkCommandBufferInheritanceInfo nothing = {
		.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_INHERITANCE_INFO,
	};
	const VkCommandBufferBeginInfo info = {
		.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
		.flags = flags,
		.pInheritanceInfo = &nothing,
	};

	EXPECT(vkBeginCommandBuffer(commands, &info));
}

static void renew(struct lane *lane, struct commands *commands)
{
	unsigned int pool = commands->pool;

	*commands = (struct commands){.pool = pool};
	allocate(lane->pools[pool], VK_COMMAND_BUFFER_LEVEL_PRIMARY, 1, &commands->handle);
}

/* ---- Waits ---- */

/* Poll now and then, as a program does that has other work. */
static void pause(void)
{
	const struct timespec time = {.tv_nsec = 20000};

	nanosleep(&time, NULL);
}

static void poll_fence(VkFence fence)
{
	VkResult result = vkGetFenceStatus(torture.handle, fence);

	torture_count(TORTURE_POLL);
	for (; result == VK_NOT_READY; result = vkGetFenceStatus(torture.handle, fence))
		pause();
	EXPECT(result);
}

static void await_fence(struct lane *lane)
{
	if (torture_chance(&lane->random, 3))
		poll_fence(lane->fence);
	else
		EXPECT(vkWaitForFences(torture.handle, 1, &lane->fence, VK_TRUE, UINT64_MAX));
	EXPECT(vkResetFences(torture.handle, 1, &lane->fence));
	lane->has_fence = false;
	torture_count(TORTURE_FENCE);
}

static void poll_value(uint64_t value, VkSemaphore timeline)
{
	uint64_t now = 0;

	torture_count(TORTURE_POLL);
	for (;;) {
		EXPECT(vkGetSemaphoreCounterValue(torture.handle, timeline, &now));
		if (now >= value)
			return;
		pause();
	}
}

static void await_value(uint64_t value, VkSemaphore timeline)
{
	const VkSemaphoreWaitInfo info = {
		.sType = VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO,
		.semaphoreCount = 1,
		.pSemaphores = &timeline,
		.pValues = &value,
	};

	EXPECT(vkWaitSemaphores(torture.handle, &info, UINT64_MAX));
	torture_count(TORTURE_WAIT_TIMELINE);
}

/* The lock keeps other threads from the queues. */
static void await_idle(struct lane *lane, bool all)
{
	pthread_mutex_lock(&lane->chain->lock);
	if (all)
		EXPECT(vkDeviceWaitIdle(torture.handle));
	else
		EXPECT(vkQueueWaitIdle(torture.queues[lane->last_queue]));
	pthread_mutex_unlock(&lane->chain->lock);
	torture_count(all ? TORTURE_DEVICE_IDLE : TORTURE_QUEUE_IDLE);
}

/* A fence of a call without submissions waits for the earlier ones. */
static void await_empty(struct lane *lane)
{
	pthread_mutex_lock(&lane->chain->lock);
	EXPECT(vkQueueSubmit(torture.queues[lane->last_queue], 0, NULL, lane->fence));
	pthread_mutex_unlock(&lane->chain->lock);
	await_fence(lane);
}

/* Wait until no command buffer of the lane is pending. */
static void await_all(struct lane *lane)
{
	unsigned int how = torture_below(&lane->random, 5);

	if (lane->has_fence)
		await_fence(lane);
	if (how == 0 && lane->last_value > 0)
		poll_value(lane->last_value, lane->chain->timeline);
	else if (how == 1 && lane->last_value > 0)
		await_value(lane->last_value, lane->chain->timeline);
	else if (how < 3)
		await_empty(lane);
	else
		await_idle(lane, how == 3);
	for (unsigned int i = 0; i < N_COMMANDS; i++)
		lane->commands[i].is_pending = false;
}

/* ---- Submissions ---- */

static void note_submitted(struct commands *commands)
{
	if (commands->was_submitted)
		torture_count(TORTURE_REUSED);
	if (commands->flags & VK_COMMAND_BUFFER_USAGE_SIMULTANEOUS_USE_BIT)
		torture_count(TORTURE_SIMULTANEOUS);
	if (commands->flags & VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT) {
		torture_count(TORTURE_ONE_TIME);
		commands->state = SPENT;
	}
	commands->is_pending = commands->was_submitted = true;
}

static bool can_submit(const struct commands *commands)
{
	return commands->state == READY &&
	       (commands->flags & VK_COMMAND_BUFFER_USAGE_SIMULTANEOUS_USE_BIT ||
		!commands->is_pending);
}

static void add_commands(struct torture_batch *batch, unsigned int i, struct commands *commands)
{
	note_submitted(commands);
	batch->submissions[i].commands[batch->submissions[i].n_commands++] = commands->handle;
	if (batch->submissions[i].n_commands == 2)
		torture_count(TORTURE_MANY_COMMANDS);
}

static bool is_unsubmitted(const struct commands *commands)
{
	return commands->state == READY && !commands->was_submitted;
}

/* Draw a command buffer, and rather one that is unsubmitted, or rather one that is not. */
static unsigned int draw_commands(struct lane *lane, bool unsubmitted)
{
	unsigned int number = torture_below(&lane->random, N_COMMANDS);

	for (unsigned int i = 0; i < 4; i++)
		if (is_unsubmitted(&lane->commands[number]) != unsubmitted)
			number = torture_below(&lane->random, N_COMMANDS);
	return number;
}

static void draw_batch(struct lane *lane, struct torture_batch *batch)
{
	uint32_t used = 0;

	batch->n = torture_chance(&lane->random, 3) ? 1 + torture_below(&lane->random, 3) : 1;
	for (unsigned int i = 0; i < batch->n; i++) {
		unsigned int n = torture_below(&lane->random, TORTURE_MOST_COMMANDS);

		for (unsigned int k = 0; k < n; k++) {
			bool is_new = !torture_chance(&lane->random, 3);
			unsigned int number = draw_commands(lane, is_new);

			if (!can_submit(&lane->commands[number]))
				continue;
			if (used & 1u << number)
				torture_count(TORTURE_TWICE);
			used |= 1u << number;
			add_commands(batch, i, &lane->commands[number]);
		}
		if (batch->submissions[i].n_commands == 0)
			torture_count(TORTURE_NO_COMMANDS);
	}
}

static void submit(struct lane *lane, struct torture_batch *batch)
{
	if (!lane->has_fence && torture_chance(&lane->random, 3)) {
		batch->fence = lane->fence;
		lane->has_fence = true;
	}
	torture_take_turn(lane->chain, lane->number);
	lane->last_value = torture_submit(lane->chain, &lane->random, batch);
	lane->last_queue = lane->chain->last_queue;
	torture_pass_turn(lane->chain, lane->number, false);
}

/* Submit each command buffer that has not been. */
static void submit_rest(struct lane *lane)
{
	struct torture_batch batch = {.n = TORTURE_MOST_BATCH};
	unsigned int n = 0;

	for (unsigned int i = 0; i < N_COMMANDS; i++)
		if (is_unsubmitted(&lane->commands[i]))
			add_commands(&batch, n++ % TORTURE_MOST_BATCH, &lane->commands[i]);
	if (n > 0)
		submit(lane, &batch);
}

/* ---- Recording ---- */

static void reset_pool(struct lane *lane, unsigned int number)
{
	bool releases = torture_chance(&lane->random, 2);

	await_all(lane);
	torture_count(TORTURE_RESET_POOL);
	EXPECT(vkResetCommandPool(torture.handle, lane->pools[number],
				  releases ? VK_COMMAND_POOL_RESET_RELEASE_RESOURCES_BIT : 0));
	for (unsigned int i = 0; i < N_COMMANDS; i++)
		if (lane->commands[i].pool == number)
			lane->commands[i].state = FRESH;
}

/* Make it possible to begin. */
static void refresh(struct lane *lane, struct commands *commands)
{
	if (commands->is_pending)
		await_all(lane);
	if (commands->n_secondaries > 0)
		vkFreeCommandBuffers(torture.handle, lane->pools[commands->pool],
				     commands->n_secondaries, commands->secondaries);
	commands->n_secondaries = 0;
	if (commands->state == FRESH)
		return;
	if (commands->pool != 0) {
		/* The others of the pool will be lost. */
		commands->state = FRESH;
		submit_rest(lane);
		reset_pool(lane, commands->pool);
	} else if (torture_chance(&lane->random, 2)) {
		torture_count(TORTURE_RESET_COMMANDS);
		EXPECT(vkResetCommandBuffer(commands->handle, 0));
	} else {
		torture_count(TORTURE_RESET_BY_BEGIN);
	}
	commands->state = FRESH;
}

static void record_secondary(struct lane *lane, VkCommandBuffer handle,
			     VkCommandBufferUsageFlags flags)
{
	const struct torture_recording recording = {
		.random = &lane->random,
		.kit = &lane->kit,
		.commands = handle,
		.is_secondary = true,
		.n_operations = 1 + torture_below(&lane->random, 4),
	};

	begin(handle, flags);
	torture_record(&recording);
	EXPECT(vkEndCommandBuffer(handle));
}

static void record_secondaries(struct lane *lane, struct commands *commands,
			       VkCommandBufferUsageFlags flags)
{
	commands->n_secondaries = torture_below(&lane->random, MOST_SECONDARIES);
	if (commands->n_secondaries == 0)
		return;
	allocate(lane->pools[commands->pool], VK_COMMAND_BUFFER_LEVEL_SECONDARY,
		 commands->n_secondaries, commands->secondaries);
	for (unsigned int i = 0; i < commands->n_secondaries; i++)
		record_secondary(lane, commands->secondaries[i], flags);
}

/* Begin and record; the caller ends or resets. @like has the events, if any. */
static void begin_and_record(struct lane *lane, struct commands *commands,
			     const struct torture_recording *like)
{
	struct torture_recording recording = *like;
	VkCommandBuffer list[MOST_SECONDARIES + 1];

	commands->state = READY;
	commands->was_submitted = false;
	if (torture_chance(&lane->random, 2))
		record_secondaries(lane, commands, commands->flags);
	for (unsigned int i = 0; i < commands->n_secondaries; i++)
		list[i] = commands->secondaries[i];
	recording.n_secondaries = commands->n_secondaries;
	if (lane->shared)
		list[recording.n_secondaries++] = lane->shared;
	recording.random = &lane->random;
	recording.kit = &lane->kit;
	recording.commands = commands->handle;
	recording.n_operations = 1 + torture_below(&lane->random, 12);
	if (torture_chance(&lane->random, 24))
		recording.n_operations += 60;
	recording.secondaries = list;
	recording.may_repeat = commands->flags & VK_COMMAND_BUFFER_USAGE_SIMULTANEOUS_USE_BIT;
	begin(commands->handle, commands->flags);
	torture_record(&recording);
}

static void record(struct lane *lane, struct commands *commands)
{
	static const VkCommandBufferUsageFlags flags[] = {
		0, VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT,
		VK_COMMAND_BUFFER_USAGE_SIMULTANEOUS_USE_BIT};
	const struct torture_recording plain = {.opening = TORTURE_OPEN_BARRIER};

	refresh(lane, commands);
	commands->flags = flags[torture_below(&lane->random, 3)];
	if (torture_chance(&lane->random, 20)) {
		torture_count(TORTURE_EMPTY);
		commands->state = READY;
		commands->was_submitted = false;
		begin(commands->handle, commands->flags);
	} else {
		begin_and_record(lane, commands, &plain);
	}
	EXPECT(vkEndCommandBuffer(commands->handle));
}

/* Record a command buffer that is submitted once, and has an event at its beginning or end. */
static void record_once(struct lane *lane, struct commands *commands,
			const struct torture_recording *like)
{
	refresh(lane, commands);
	commands->flags = VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT;
	begin_and_record(lane, commands, like);
	EXPECT(vkEndCommandBuffer(commands->handle));
}

/* ---- Actions that submit ---- */

static void submit_some(struct lane *lane)
{
	struct torture_batch batch = {.n = 0};
	unsigned int n_ready = 0, first = torture_below(&lane->random, N_COMMANDS);

	if (torture_chance(&lane->random, 3))
		await_all(lane);
	for (unsigned int i = 0; i < N_COMMANDS; i++)
		n_ready += can_submit(&lane->commands[i]);
	if (n_ready == 0)
		record(lane, &lane->commands[first]);
	draw_batch(lane, &batch);
	submit(lane, &batch);
}

/* Submit two command buffers, of which the second one waits for an event of the first one. */
static void submit_pair(struct lane *lane)
{
	unsigned int first = torture_below(&lane->random, N_COMMANDS);
	unsigned int second = (first + 1) % N_COMMANDS;
	unsigned int how = torture_below(&lane->random, lane->chain->n_lanes == 1 ? 3 : 2);
	struct torture_recording recording = {.opening = TORTURE_OPEN_BARRIER};
	struct torture_batch batch = {.n = 1};

	if (lane->kit.n_events == TORTURE_EVENTS)
		return;
	torture_count(TORTURE_EVENT_ACROSS);
	/* Neighbours have different pools, so that a reset of one leaves the other alone. */
	refresh(lane, &lane->commands[first]);
	refresh(lane, &lane->commands[second]);
	recording.set_at_end = lane->kit.events[lane->kit.n_events++];
	record_once(lane, &lane->commands[first], &recording);
	recording.opening = TORTURE_OPEN_EVENT;
	recording.awaited = recording.set_at_end;
	recording.set_at_end = VK_NULL_HANDLE;
	record_once(lane, &lane->commands[second], &recording);
	add_commands(&batch, 0, &lane->commands[first]);
	if (how == 2) {
		submit(lane, &batch);
		batch = (struct torture_batch){.n = 1, .keeps_queue = true};
	}
	batch.n = how == 1 ? 2 : 1;
	add_commands(&batch, batch.n - 1, &lane->commands[second]);
	submit(lane, &batch);
}

/* Submit a command buffer that waits for an event of the host. */
static void submit_host_event(struct lane *lane)
{
	struct commands *commands = &lane->commands[torture_below(&lane->random, N_COMMANDS)];
	struct torture_recording recording = {.opening = TORTURE_OPEN_HOST_EVENT};
	struct torture_batch batch = {.n = 1};

	lane->wants_host_event = false;
	if (lane->kit.n_events == TORTURE_EVENTS)
		return;
	torture_count(TORTURE_EVENT_HOST);
	recording.awaited = batch.host_event = lane->kit.events[lane->kit.n_events++];
	record_once(lane, commands, &recording);
	add_commands(&batch, 0, commands);
	submit(lane, &batch);
}

/* ---- Other actions ---- */

static void show_to_host(VkCommandBuffer commands)
{
	const VkMemoryBarrier barrier = {
		.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
		.srcAccessMask = VK_ACCESS_MEMORY_WRITE_BIT,
		.dstAccessMask = VK_ACCESS_HOST_READ_BIT,
	};

	vkCmdPipelineBarrier(commands, VK_PIPELINE_STAGE_ALL_COMMANDS_BIT,
			     VK_PIPELINE_STAGE_HOST_BIT, 0, 1, &barrier, 0, NULL, 0, NULL);
}

/*
 * Submit some, and read all memory once they have ended; then change some. The other lanes of a
 * case would write meanwhile.
 */
static void look(struct lane *lane)
{
	struct torture_batch batch = {.n = 0};
	unsigned int last;

	if (lane->chain->n_lanes > 1)
		return;
	await_all(lane);
	if (!lane->shower) {
		allocate(lane->shared_pool, VK_COMMAND_BUFFER_LEVEL_PRIMARY, 1, &lane->shower);
		begin(lane->shower, 0);
		show_to_host(lane->shower);
		EXPECT(vkEndCommandBuffer(lane->shower));
	}
	draw_batch(lane, &batch);
	last = batch.n - 1;
	batch.submissions[last].commands[batch.submissions[last].n_commands++] = lane->shower;
	submit(lane, &batch);
	await_all(lane);
	torture_count(TORTURE_HOST_READ);
	lane->seen = torture_hash_memory(lane->seen);
	if (torture_chance(&lane->random, 2))
		torture_change_memory(&lane->random);
}

static void abandon(struct lane *lane, struct commands *commands)
{
	const struct torture_recording plain = {.opening = TORTURE_OPEN_BARRIER};

	refresh(lane, commands);
	torture_count(TORTURE_ABANDON);
	commands->flags = 0;
	begin_and_record(lane, commands, &plain);
	if (torture_chance(&lane->random, 2))
		EXPECT(vkEndCommandBuffer(commands->handle));
	if (commands->pool != 0) {
		reset_pool(lane, commands->pool);
		return;
	}
	EXPECT(vkResetCommandBuffer(commands->handle,
				    VK_COMMAND_BUFFER_RESET_RELEASE_RESOURCES_BIT));
	commands->state = FRESH;
}

static void replace(struct lane *lane, struct commands *commands)
{
	if (commands->is_pending)
		await_all(lane);
	torture_count(TORTURE_FREE_COMMANDS);
	if (commands->n_secondaries > 0)
		vkFreeCommandBuffers(torture.handle, lane->pools[commands->pool],
				     commands->n_secondaries, commands->secondaries);
	vkFreeCommandBuffers(torture.handle, lane->pools[commands->pool], 1, &commands->handle);
	renew(lane, commands);
}

static void replace_pool(struct lane *lane, unsigned int number)
{
	await_all(lane);
	torture_count(TORTURE_DESTROY_POOL);
	vkDestroyCommandPool(torture.handle, lane->pools[number], NULL);
	lane->pools[number] = make_numbered_pool(number);
	for (unsigned int i = 0; i < N_COMMANDS; i++)
		if (lane->commands[i].pool == number)
			renew(lane, &lane->commands[i]);
}

static void act(struct lane *lane)
{
	unsigned int choice = torture_below(&lane->random, 26);
	struct commands *commands = &lane->commands[draw_commands(lane, false)];

	if (choice > 21 && choice < 24 && !torture_chance(&lane->random, 3))
		submit_rest(lane);
	if (lane->wants_host_event)
		submit_host_event(lane);
	if (choice < 8)
		record(lane, commands);
	else if (choice < 16)
		submit_some(lane);
	else if (choice < 18)
		submit_pair(lane);
	else if (choice >= 24)
		look(lane);
	else if (choice == 18)
		await_all(lane);
	else if (choice < 21)
		abandon(lane, commands);
	else if (choice == 21)
		replace(lane, commands);
	else if (choice == 22)
		replace_pool(lane, torture_below(&lane->random, N_POOLS));
	else
		reset_pool(lane, torture_below(&lane->random, N_POOLS));
}

/* ---- Lanes ---- */

static void lane_init(struct lane *lane, struct torture_chain *chain, unsigned int number,
		      uint64_t seed)
{
	const VkFenceCreateInfo fence = {.sType = VK_STRUCTURE_TYPE_FENCE_CREATE_INFO};

	*lane = (struct lane){.chain = chain, .number = number, .random.state = seed};
	torture_kit_init(&lane->kit, &lane->random, number, chain->n_lanes);
	for (unsigned int i = 0; i < N_POOLS; i++)
		lane->pools[i] = make_numbered_pool(i);
	for (unsigned int i = 0; i < N_COMMANDS; i++) {
		lane->commands[i].pool = i % N_POOLS;
		renew(lane, &lane->commands[i]);
	}
	EXPECT(vkCreateFence(torture.handle, &fence, NULL, &lane->fence));
	lane->shared_pool = make_pool(0);
	lane->wants_host_event = chain->n_lanes == 1 && torture_chance(&lane->random, 50);
}

static void lane_deinit(struct lane *lane)
{
	for (unsigned int i = 0; i < N_POOLS; i++)
		vkDestroyCommandPool(torture.handle, lane->pools[i], NULL);
	vkDestroyCommandPool(torture.handle, lane->shared_pool, NULL);
	vkDestroyFence(torture.handle, lane->fence, NULL);
	torture_kit_deinit(&lane->kit);
}

static void *lane_run(void *argument)
{
	struct lane *lane = argument;
	unsigned int n_actions = 3 + torture_below(&lane->random, 8 / lane->chain->n_lanes);

	if (torture_chance(&lane->random, 2)) {
		allocate(lane->shared_pool, VK_COMMAND_BUFFER_LEVEL_SECONDARY, 1, &lane->shared);
		record_secondary(lane, lane->shared, VK_COMMAND_BUFFER_USAGE_SIMULTANEOUS_USE_BIT);
	}
	for (unsigned int i = 0; i < n_actions; i++)
		act(lane);
	submit_some(lane);
	submit_rest(lane);
	torture_take_turn(lane->chain, lane->number);
	torture_pass_turn(lane->chain, lane->number, true);
	await_all(lane);
	return NULL;
}

static void run_lanes(struct lane *lanes, unsigned int n)
{
	if (n == 1) {
		lane_run(&lanes[0]);
		return;
	}
	torture_count(TORTURE_THREADS);
	for (unsigned int i = 0; i < n; i++)
		if (pthread_create(&lanes[i].thread, NULL, lane_run, &lanes[i]))
			EXPECT(VK_ERROR_OUT_OF_HOST_MEMORY);
	for (unsigned int i = 0; i < n; i++)
		pthread_join(lanes[i].thread, NULL);
}

/* ---- The case ---- */

static void prepare_image(VkCommandBuffer commands)
{
	const VkImageSubresourceRange range = {VK_IMAGE_ASPECT_COLOR_BIT, 0, 1, 0, 1};
	const VkClearColorValue value = {.uint32 = {1}};
	const VkImageMemoryBarrier barrier = {
		.sType = VK_STRUCTURE_TYPE_IMAGE_MEMORY_BARRIER,
		.dstAccessMask = VK_ACCESS_TRANSFER_WRITE_BIT,
		.newLayout = VK_IMAGE_LAYOUT_GENERAL,
		.srcQueueFamilyIndex = VK_QUEUE_FAMILY_IGNORED,
		.dstQueueFamilyIndex = VK_QUEUE_FAMILY_IGNORED,
		.image = torture.image,
		.subresourceRange = range,
	};

	vkCmdPipelineBarrier(commands, VK_PIPELINE_STAGE_ALL_COMMANDS_BIT,
			     VK_PIPELINE_STAGE_TRANSFER_BIT, 0, 0, NULL, 0, NULL, 1, &barrier);
	vkCmdClearColorImage(commands, torture.image, VK_IMAGE_LAYOUT_GENERAL, &value, 1, &range);
}

static void copy_image(VkCommandBuffer commands)
{
	const VkMemoryBarrier barrier = {
		.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
		.srcAccessMask = VK_ACCESS_MEMORY_WRITE_BIT,
		.dstAccessMask = VK_ACCESS_TRANSFER_READ_BIT | VK_ACCESS_TRANSFER_WRITE_BIT,
	};
	const VkBufferImageCopy region = {
		.imageSubresource = {VK_IMAGE_ASPECT_COLOR_BIT, 0, 0, 1},
		.imageExtent = {TORTURE_IMAGE_SIDE, TORTURE_IMAGE_SIDE, 1},
	};

	vkCmdPipelineBarrier(commands, VK_PIPELINE_STAGE_ALL_COMMANDS_BIT,
			     VK_PIPELINE_STAGE_TRANSFER_BIT, 0, 1, &barrier, 0, NULL, 0, NULL);
	vkCmdCopyImageToBuffer(commands, torture.image, VK_IMAGE_LAYOUT_GENERAL,
			       torture.picture.handle, 1, &region);
}

static void prepare_queries(VkCommandBuffer commands, const struct torture_kit *kit)
{
	vkCmdResetQueryPool(commands, kit->times, 0, TORTURE_QUERIES);
	if (torture.has_statistics)
		vkCmdResetQueryPool(commands, kit->statistics, 0, TORTURE_QUERIES);
}

static void submit_alone(struct torture_chain *chain, struct torture_random *random,
			 VkCommandBuffer commands)
{
	struct torture_batch batch = {.n = 1};

	EXPECT(vkEndCommandBuffer(commands));
	batch.submissions[0].commands[0] = commands;
	batch.submissions[0].n_commands = 1;
	torture_submit(chain, random, &batch);
}

uint64_t torture_run_case(uint64_t seed)
{
	struct torture_random random = {seed};
	unsigned int n_lanes = torture_chance(&random, 6) ? TORTURE_MOST_LANES : 1;
	struct lane lanes[TORTURE_MOST_LANES];
	struct torture_chain chain;
	VkCommandPool pool = make_pool(0);
	VkCommandBuffer commands[2];
	uint64_t result;

	torture_fill_memory(&random);
	torture_chain_init(&chain, n_lanes);
	for (unsigned int i = 0; i < n_lanes; i++)
		lane_init(&lanes[i], &chain, i, torture_draw(&random));
	allocate(pool, VK_COMMAND_BUFFER_LEVEL_PRIMARY, 2, commands);
	begin(commands[0], VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT);
	prepare_image(commands[0]);
	for (unsigned int i = 0; i < n_lanes; i++)
		prepare_queries(commands[0], &lanes[i].kit);
	submit_alone(&chain, &random, commands[0]);
	run_lanes(lanes, n_lanes);
	begin(commands[1], VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT);
	copy_image(commands[1]);
	show_to_host(commands[1]);
	submit_alone(&chain, &random, commands[1]);
	EXPECT(vkDeviceWaitIdle(torture.handle));
	result = torture_hash_memory(lanes[0].seen);
	for (unsigned int i = 0; i < n_lanes; i++)
		result = torture_hash_queries(result, &lanes[i].kit);
	for (unsigned int i = 0; i < n_lanes; i++)
		lane_deinit(&lanes[i]);
	torture_chain_deinit(&chain);
	vkDestroyCommandPool(torture.handle, pool, NULL);
	return result;
}

/* SPDX-License-Identifier: MIT */
/*
 * Submissions of torture-client
 *
 * All submissions of a case have one order, whichever thread and queue they come from: threads take
 * turns, and a submission to another queue waits for a semaphore that the one before it signals. So
 * the results are the same, however long each takes. Some submissions wait for a gate that the
 * host, or a submission to another queue, opens after the call.
 */
#include "support/torture.h"

/* The semaphores of a submission. */
struct edges {
	VkSemaphore waits[3], signals[2];
	uint64_t wait_values[3], signal_values[2];
	unsigned int n_waits, n_signals;
};

static VkSemaphore make_timeline(void)
{
	const VkSemaphoreTypeCreateInfo type = {
		.sType = VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO,
		.semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE,
	};
	const VkSemaphoreCreateInfo info = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO,
					    .pNext = &type};
	VkSemaphore semaphore;

	EXPECT(vkCreateSemaphore(torture.handle, &info, NULL, &semaphore));
	return semaphore;
}

void torture_chain_init(struct torture_chain *chain, unsigned int n_lanes)
{
	*chain = (struct torture_chain){.n_lanes = n_lanes};
	pthread_mutex_init(&chain->lock, NULL);
	pthread_cond_init(&chain->turned, NULL);
	chain->timeline = make_timeline();
	chain->gate = make_timeline();
}

void torture_chain_deinit(struct torture_chain *chain)
{
	for (unsigned int i = 0; i < chain->n_binaries; i++)
		vkDestroySemaphore(torture.handle, chain->binaries[i], NULL);
	vkDestroySemaphore(torture.handle, chain->timeline, NULL);
	vkDestroySemaphore(torture.handle, chain->gate, NULL);
	pthread_cond_destroy(&chain->turned);
	pthread_mutex_destroy(&chain->lock);
}

/* Wait for the lane's turn, and keep it, with the lock of the queues. */
void torture_take_turn(struct torture_chain *chain, unsigned int lane)
{
	pthread_mutex_lock(&chain->lock);
	while (chain->turn != lane)
		pthread_cond_wait(&chain->turned, &chain->lock);
}

void torture_pass_turn(struct torture_chain *chain, unsigned int lane, bool has_ended)
{
	chain->ended[lane] = has_ended;
	for (unsigned int i = 1; i <= chain->n_lanes; i++) {
		chain->turn = (lane + i) % chain->n_lanes;
		if (!chain->ended[chain->turn])
			break;
	}
	pthread_cond_broadcast(&chain->turned);
	pthread_mutex_unlock(&chain->lock);
}

/* ---- Calls ---- */

static void add_wait(struct edges *edges, VkSemaphore semaphore, uint64_t value)
{
	edges->waits[edges->n_waits] = semaphore;
	edges->wait_values[edges->n_waits++] = value;
}

static void add_signal(struct edges *edges, VkSemaphore semaphore, uint64_t value)
{
	edges->signals[edges->n_signals] = semaphore;
	edges->signal_values[edges->n_signals++] = value;
}

/* The first submission of a call waits, and the last one signals. */
static void submit_1(VkQueue queue, const struct torture_batch *batch, const struct edges *edges)
{
	static const VkPipelineStageFlags stages[3] = {VK_PIPELINE_STAGE_ALL_COMMANDS_BIT,
						       VK_PIPELINE_STAGE_ALL_COMMANDS_BIT,
						       VK_PIPELINE_STAGE_ALL_COMMANDS_BIT};
	VkTimelineSemaphoreSubmitInfo values[TORTURE_MOST_BATCH];
	VkSubmitInfo infos[TORTURE_MOST_BATCH];

	for (unsigned int i = 0; i < batch->n; i++) {
		unsigned int n_waits = i == 0 ? edges->n_waits : 0;
		unsigned int n_signals = i + 1 == batch->n ? edges->n_signals : 0;

		values[i] = (VkTimelineSemaphoreSubmitInfo){
			.sType = VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO,
			.waitSemaphoreValueCount = n_waits,
			.pWaitSemaphoreValues = edges->wait_values,
			.signalSemaphoreValueCount = n_signals,
			.pSignalSemaphoreValues = edges->signal_values,
		};
		infos[i] = (VkSubmitInfo){
			.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
			.pNext = n_waits + n_signals > 0 ? &values[i] : NULL,
			.waitSemaphoreCount = n_waits,
			.pWaitSemaphores = edges->waits,
			.pWaitDstStageMask = stages,
			.commandBufferCount = batch->submissions[i].n_commands,
			.pCommandBuffers = batch->submissions[i].commands,
			.signalSemaphoreCount = n_signals,
			.pSignalSemaphores = edges->signals,
		};
	}
	torture_count(TORTURE_SUBMIT);
	EXPECT(vkQueueSubmit(queue, batch->n, infos, batch->fence));
}

static VkSemaphoreSubmitInfo semaphore_2(VkSemaphore semaphore, uint64_t value)
{
	return (VkSemaphoreSubmitInfo){
		.sType = VK_STRUCTURE_TYPE_SEMAPHORE_SUBMIT_INFO,
		.semaphore = semaphore,
		.value = value,
		.stageMask = VK_PIPELINE_STAGE_2_ALL_COMMANDS_BIT,
	};
}

static void submit_2(VkQueue queue, const struct torture_batch *batch, const struct edges *edges)
{
	VkSemaphoreSubmitInfo waits[3], signals[2];
	VkCommandBufferSubmitInfo commands[TORTURE_MOST_BATCH][TORTURE_MOST_COMMANDS];
	VkSubmitInfo2 infos[TORTURE_MOST_BATCH];

	for (unsigned int i = 0; i < edges->n_waits; i++)
		waits[i] = semaphore_2(edges->waits[i], edges->wait_values[i]);
	for (unsigned int i = 0; i < edges->n_signals; i++)
		signals[i] = semaphore_2(edges->signals[i], edges->signal_values[i]);
	for (unsigned int i = 0; i < batch->n; i++) {
		for (unsigned int k = 0; k < batch->submissions[i].n_commands; k++)
			commands[i][k] = (VkCommandBufferSubmitInfo){
				.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_SUBMIT_INFO,
				.commandBuffer = batch->submissions[i].commands[k],
			};
		infos[i] = (VkSubmitInfo2){
			.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO_2,
			.waitSemaphoreInfoCount = i == 0 ? edges->n_waits : 0,
			.pWaitSemaphoreInfos = waits,
			.commandBufferInfoCount = batch->submissions[i].n_commands,
			.pCommandBufferInfos = commands[i],
			.signalSemaphoreInfoCount = i + 1 == batch->n ? edges->n_signals : 0,
			.pSignalSemaphoreInfos = signals,
		};
	}
	torture_count(TORTURE_SUBMIT2);
	EXPECT(vkQueueSubmit2(queue, batch->n, infos, batch->fence));
}

/* ---- Edges ---- */

/* Follow the submission before. */
static void draw_waits(struct torture_chain *chain, struct torture_random *random,
		       unsigned int queue, struct edges *edges)
{
	bool must_wait = queue != chain->last_queue;

	if (chain->last_binary) {
		torture_count(TORTURE_BINARY);
		add_wait(edges, chain->last_binary, 0);
	}
	if (chain->last_value > 0 && (torture_chance(random, 2) || must_wait)) {
		torture_count(TORTURE_TIMELINE);
		add_wait(edges, chain->timeline, chain->last_value);
	}
	chain->last_binary = VK_NULL_HANDLE;
}

static VkSemaphore make_binary(struct torture_chain *chain)
{
	const VkSemaphoreCreateInfo info = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO};
	VkSemaphore *binary = &chain->binaries[chain->n_binaries++];

	EXPECT(vkCreateSemaphore(torture.handle, &info, NULL, binary));
	return *binary;
}

/* Another queue can follow only a submission that signals. */
static void draw_signals(struct torture_chain *chain, struct torture_random *random,
			 struct edges *edges)
{
	bool has_value = torture_chance(random, 2);

	if (torture_chance(random, 6) && chain->n_binaries < TORTURE_MOST_BINARY) {
		chain->last_binary = make_binary(chain);
		add_signal(edges, chain->last_binary, 0);
	}
	chain->last_value = 0;
	if (has_value) {
		chain->last_value = ++chain->value;
		add_signal(edges, chain->timeline, chain->value);
	}
}

static unsigned int draw_queue(struct torture_chain *chain, struct torture_random *random,
			       bool keeps)
{
	unsigned int other = torture_below(random, TORTURE_MOST_QUEUES);

	if (keeps || (!chain->last_binary && chain->last_value == 0))
		return chain->last_queue;
	other %= torture.n_queues;
	if (other != chain->last_queue)
		torture_count(TORTURE_QUEUES);
	return other;
}

/* ---- Gates ---- */

struct opener {
	struct torture_chain *chain;
	unsigned int queue;
};

/* Open the gate, by a submission if there is another queue. */
static void *open_gate(void *argument)
{
	static const struct torture_batch nothing = {.n = 1};
	const struct opener *opener = argument;
	struct torture_chain *chain = opener->chain;
	const VkSemaphoreSignalInfo info = {
		.sType = VK_STRUCTURE_TYPE_SEMAPHORE_SIGNAL_INFO,
		.semaphore = chain->gate,
		.value = chain->gate_value,
	};
	struct edges edges = {.n_waits = 0};

	if (torture.n_queues == 1) {
		EXPECT(vkSignalSemaphore(torture.handle, &info));
		return NULL;
	}
	add_signal(&edges, chain->gate, chain->gate_value);
	submit_1(torture.queues[(opener->queue + 1) % torture.n_queues], &nothing, &edges);
	return NULL;
}

static void open_by_thread(struct torture_chain *chain, unsigned int queue)
{
	struct opener opener = {chain, queue};
	pthread_t thread;

	if (pthread_create(&thread, NULL, open_gate, &opener))
		EXPECT(VK_ERROR_OUT_OF_HOST_MEMORY);
	pthread_join(thread, NULL);
}

uint64_t torture_submit(struct torture_chain *chain, struct torture_random *random,
			const struct torture_batch *batch)
{
	unsigned int queue = draw_queue(chain, random, batch->keeps_queue);
	bool is_late = torture_chance(random, 12), is_2 = torture_chance(random, 3);
	struct edges edges = {.n_waits = 0};

	draw_waits(chain, random, queue, &edges);
	draw_signals(chain, random, &edges);
	chain->last_queue = queue;
	if (is_late)
		add_wait(&edges, chain->gate, ++chain->gate_value);
	if (batch->n > 1)
		torture_count(TORTURE_MANY_SUBMISSIONS);
	if (is_2 && torture.has_submit2)
		submit_2(torture.queues[queue], batch, &edges);
	else
		submit_1(torture.queues[queue], batch, &edges);
	if (is_late) {
		torture_count(TORTURE_LATE);
		open_by_thread(chain, queue);
	}
	if (batch->host_event)
		EXPECT(vkSetEvent(torture.handle, batch->host_event));
	return chain->last_value;
}

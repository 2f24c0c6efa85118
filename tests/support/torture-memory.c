/* SPDX-License-Identifier: MIT */
/*
 * The memory of torture-client, as the host writes and reads it
 *
 * The device must be idle, and its writes visible to the host.
 */
#include "support/torture.h"

/* Arguments and predicates are small; all other words are drawn. */
void torture_fill_memory(struct torture_random *random)
{
	for (unsigned int i = 0; i < TORTURE_BUFFERS; i++)
		for (uint32_t k = 0; k < torture.buffers[i].n_words; k += 2) {
			uint64_t words = torture_draw(random);

			torture.buffers[i].words[k] = (uint32_t)words;
			torture.buffers[i].words[k + 1] = (uint32_t)(words >> 32);
		}
	for (uint32_t k = 0; k < torture.sums.n_words; k++)
		torture.sums.words[k] = k;
	for (uint32_t k = 0; k < torture.arguments.n_words; k++)
		torture.arguments.words[k] = 1 + torture_below(random, TORTURE_MOST_INDIRECT);
	for (uint32_t k = 0; k < torture.picture.n_words; k++)
		torture.picture.words[k] = 0;
	for (uint32_t k = 0; k < torture.results.n_words; k++)
		torture.results.words[k] = 0;
	for (uint32_t k = 0; k < torture.predicates.n_words; k++)
		torture.predicates.words[k] = torture_below(random, 2) * (k + 1);
}

/* Change words that command buffers already recorded will read. */
void torture_change_memory(struct torture_random *random)
{
	unsigned int number = torture_below(random, TORTURE_BUFFERS);

	torture_count(TORTURE_HOST_WRITE);
	for (uint32_t i = 0; i < TORTURE_BUFFER_BYTES / 4; i++)
		torture.buffers[number].words[i] ^= (uint32_t)torture_draw(random);
	for (uint32_t i = 0; i < torture.arguments.n_words; i += 1 + torture_below(random, 4))
		torture.arguments.words[i] = 1 + torture_below(random, TORTURE_MOST_INDIRECT);
}

static uint64_t hash(uint64_t before, uint64_t word)
{
	uint64_t after = (before ^ word) * 0x9e3779b97f4a7c15u;

	return after ^ after >> 29;
}

static uint64_t hash_buffer(uint64_t before, const struct torture_buffer *buffer)
{
	for (uint32_t i = 0; i < buffer->n_words; i += 2)
		before = hash(before, buffer->words[i] | (uint64_t)buffer->words[i + 1] << 32);
	return before;
}

uint64_t torture_hash_memory(uint64_t before)
{
	for (unsigned int i = 0; i < TORTURE_BUFFERS; i++)
		before = hash_buffer(before, &torture.buffers[i]);
	before = hash_buffer(before, &torture.sums);
	before = hash_buffer(before, &torture.arguments);
	before = hash_buffer(before, &torture.picture);
	return hash_buffer(before, &torture.results);
}

/* A time differs from run to run, so only its availability counts. */
uint64_t torture_hash_queries(uint64_t before, const struct torture_kit *kit)
{
	const VkQueryResultFlags flags =
		VK_QUERY_RESULT_64_BIT | VK_QUERY_RESULT_WITH_AVAILABILITY_BIT;
	uint64_t list[TORTURE_QUERIES][2] = {{0}};

	if (vkGetQueryPoolResults(torture.handle, kit->times, 0, TORTURE_QUERIES, sizeof(list),
				  list, sizeof(list[0]), flags) < 0)
		EXPECT(VK_ERROR_UNKNOWN);
	for (unsigned int i = 0; i < TORTURE_QUERIES; i++)
		before = hash(before, list[i][1] != 0);
	if (!torture.has_statistics)
		return before;
	if (vkGetQueryPoolResults(torture.handle, kit->statistics, 0, TORTURE_QUERIES, sizeof(list),
				  list, sizeof(list[0]), flags) < 0)
		EXPECT(VK_ERROR_UNKNOWN);
	for (unsigned int i = 0; i < TORTURE_QUERIES; i++)
		before = hash(before, list[i][1] ? list[i][0] + 1 : 0);
	return before;
}

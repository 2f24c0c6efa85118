/* SPDX-License-Identifier: MIT */
/* Copies of records with terminated strings, and names for their values. */
#include "records.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#define N_OF(array)       (sizeof(array) / sizeof((array)[0]))
#define NAME_OF(names, i) ((i) < N_OF(names) && (names)[i] ? (names)[i] : "unknown")

void await_updates(const struct rbk_stats_view *view)
{
	const uint64_t before = rbk_stats_load(&view->page->n_updates);
	const struct timespec pause = {.tv_nsec = 20000000};

	for (unsigned int i = 0; i < 50 && rbk_stats_load(&view->page->n_updates) - before < 2; i++)
		nanosleep(&pause, NULL);
}

void broker_copy(const struct rbk_stats_view *root, struct rbk_stats_broker *ret)
{
	page_copy(root, RBK_STATS_SECTION_BROKER, 0, ret, sizeof(*ret));
}

bool upkeep_copy(const struct rbk_stats_view *root, struct rbk_stats_upkeep *ret)
{
	page_copy(root, RBK_STATS_SECTION_UPKEEP, 0, ret, sizeof(*ret));
	return rbk_stats_count(root, RBK_STATS_SECTION_UPKEEP) > 0;
}

bool reload_copy(const struct rbk_stats_view *root, struct rbk_stats_reload *ret)
{
	page_copy(root, RBK_STATS_SECTION_RELOAD, 0, ret, sizeof(*ret));
	ret->reason[sizeof(ret->reason) - 1] = '\0';
	return rbk_stats_count(root, RBK_STATS_SECTION_RELOAD) > 0;
}

bool waiting_copy(const struct rbk_stats_view *root, struct rbk_stats_waiting *ret)
{
	page_copy(root, RBK_STATS_SECTION_WAITING, 0, ret, sizeof(*ret));
	ret->keys[sizeof(ret->keys) - 1] = '\0';
	return rbk_stats_count(root, RBK_STATS_SECTION_WAITING) > 0;
}

void device_copy(const struct rbk_stats_view *view, uint32_t index, struct rbk_stats_device *ret)
{
	page_copy(view, RBK_STATS_SECTION_DEVICES, index, ret, sizeof(*ret));
	ret->name[sizeof(ret->name) - 1] = '\0';
	ret->driver[sizeof(ret->driver) - 1] = '\0';
	ret->paths[sizeof(ret->paths) - 1] = '\0';
}

bool tenant_copy(const struct rbk_stats_view *view, uint32_t index, struct rbk_stats_tenant *ret)
{
	page_copy(view, RBK_STATS_SECTION_TENANTS, index, ret, sizeof(*ret));
	ret->name[sizeof(ret->name) - 1] = '\0';
	return ret->flags & RBK_STATS_TENANT_USED;
}

bool session_copy(const struct rbk_stats_view *view, uint32_t index, struct rbk_stats_session *ret)
{
	page_copy(view, RBK_STATS_SECTION_SESSIONS, index, ret, sizeof(*ret));
	ret->name[sizeof(ret->name) - 1] = '\0';
	ret->comm[sizeof(ret->comm) - 1] = '\0';
	return ret->number != 0;
}

bool lease_copy(const struct rbk_stats_view *view, uint32_t index, struct rbk_stats_lease *ret)
{
	page_copy_lease(view, index, ret);
	ret->name[sizeof(ret->name) - 1] = '\0';
	return ret->number != 0;
}

void contention_copy(const struct rbk_stats_view *root, struct rbk_stats_contention *ret)
{
	page_copy(root, RBK_STATS_SECTION_CONTENTION, 0, ret, sizeof(*ret));
	for (unsigned int i = 0; i < RBK_STATS_MAX_SENTENCES; i++)
		ret->sentences[i][RBK_STATS_SENTENCE_BYTES - 1] = '\0';
}

void delay_end_strings(struct rbk_stats_delay *delay)
{
	if (delay->n_causes > RBK_STATS_MAX_CAUSES)
		delay->n_causes = RBK_STATS_MAX_CAUSES;
	for (uint32_t i = 0; i < delay->n_causes; i++) {
		delay->causes[i].comm[RBK_STATS_COMM_BYTES - 1] = '\0';
		delay->causes[i].cgroup[RBK_STATS_CGROUP_BYTES - 1] = '\0';
	}
}

bool delay_copy(const struct rbk_stats_view *view, uint32_t index, struct rbk_stats_delay *ret)
{
	page_copy(view, RBK_STATS_SECTION_DELAYS, index, ret, sizeof(*ret));
	delay_end_strings(ret);
	return ret->flags & RBK_STATS_DELAY_USED;
}

/* Return: true if the record is that of tenant @number. */
static bool read_head(const struct rbk_stats_view *view, uint32_t index, uint32_t number,
		      struct tenant_head *ret)
{
	return page_copy_tenant_head(view, index, ret) && ret->number == number;
}

const char *tenant_name(const struct rbk_stats_view *view, uint32_t number)
{
	/* Cache of record indices: ten thousand sessions may belong to a thousand tenants. */
	static uint32_t seen[4096];
	uint32_t *index = &seen[number % (sizeof(seen) / sizeof(seen[0]))];
	static struct tenant_head tenant;

	if (number && read_head(view, *index, number, &tenant))
		return tenant.name;
	for (uint32_t i = 0; number && i < rbk_stats_used(view, RBK_STATS_SECTION_TENANTS); i++)
		if (read_head(view, i, number, &tenant)) {
			*index = i;
			return tenant.name;
		}
	return NULL;
}

const char *device_label(uint32_t index)
{
	static const char *const labels[RBK_MAX_DEVICES] = {
		"CPU",  "GPU1", "GPU2",  "GPU3",  "GPU4",  "GPU5",  "GPU6",  "GPU7",
		"GPU8", "GPU9", "GPU10", "GPU11", "GPU12", "GPU13", "GPU14", "GPU15",
	};

	return index < RBK_MAX_DEVICES ? labels[index] : "-";
}

bool device_number(const char *text, uint32_t *ret)
{
	uint64_t number;

	for (uint32_t i = 0; i < RBK_MAX_DEVICES; i++) {
		if (strcasecmp(text, device_label(i)) == 0) {
			*ret = i;
			return true;
		}
	}
	if (!pages_number(text, RBK_MAX_DEVICES - 1, &number))
		return false;
	*ret = (uint32_t)number;
	return true;
}

const char *tiles_name(uint32_t op)
{
	static const char *const names[] = {
		[RBK_STATS_TILE_MATMUL] = "MatMul",
		[RBK_STATS_TILE_CONV] = "Conv",
		[RBK_STATS_TILE_MATMUL_F16] = "MatMul_float16",
	};

	return NAME_OF(names, op);
}

const char *tile_class_name(uint32_t class)
{
	static const char *const names[] = {"large", "small", "few_rows", "few_columns"};

	return NAME_OF(names, class);
}

const char *text_tile(const struct rbk_stats_device *device, uint32_t op, uint32_t class)
{
	const struct rbk_stats_tile *tile = &device->tiles[op][class];
	const bool of_matrices = op == RBK_STATS_TILE_MATMUL_F16 &&
				 device->flags & RBK_STATS_DEVICE_TILES_OF_MATRICES << class;
	static char text[sizeof("255x255 matrices")];

	snprintf(text, sizeof(text), "%ux%u%s", tile->rows, tile->columns,
		 of_matrices ? " matrices" : "");
	return text;
}

const char *strategy_name(uint32_t strategy)
{
	static const char *const names[] = {
		[RBK_STRATEGY_AUTO] = "automatic",        [RBK_STRATEGY_PREFER_GPU] = "prefer-gpu",
		[RBK_STRATEGY_PREFER_CPU] = "prefer-cpu", [RBK_STRATEGY_ONLY_GPU] = "only-gpu",
		[RBK_STRATEGY_ONLY_CPU] = "only-cpu",     [RBK_STRATEGY_LATENCY] = "latency",
		[RBK_STRATEGY_ENERGY] = "energy",         [RBK_STRATEGY_PARTITION] = "partition",
	};

	return NAME_OF(names, strategy);
}

const char *contention_source_name(uint32_t source)
{
	static const char *const names[] = {
		[RBK_STATS_SOURCE_NONE] = "none",           [RBK_STATS_SOURCE_EBPF] = "ebpf",
		[RBK_STATS_SOURCE_SCHEDSTAT] = "schedstat", [RBK_STATS_SOURCE_PSI] = "psi",
		[RBK_STATS_SOURCE_STAT] = "stat",
	};

	return NAME_OF(names, source);
}

double mean_of(uint64_t sum, uint64_t n)
{
	return n ? (double)sum / (double)n : 0;
}

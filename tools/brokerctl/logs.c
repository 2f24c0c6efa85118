/* SPDX-License-Identifier: MIT */
/* Reading the logs of tasks, segments and refused entries while the broker writes them. */
#include "logs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static uint64_t log_member(const struct tenant_page *tenant, size_t offset)
{
	const char *record = rbk_stats_record(&tenant->view, RBK_STATS_SECTION_TENANTS, 0);

	return record ? __atomic_load_n((const uint64_t *)(record + offset), __ATOMIC_ACQUIRE) : 0;
}

uint64_t log_head(const struct tenant_page *tenant)
{
	return log_member(tenant, offsetof(struct rbk_stats_tenant, log_head));
}

uint64_t log_first(const struct tenant_page *tenant)
{
	return log_member(tenant, offsetof(struct rbk_stats_tenant, log_first));
}

uint64_t log_oldest(const struct tenant_page *tenant, uint64_t head)
{
	uint64_t first = log_first(tenant);
	uint64_t n = rbk_stats_count(&tenant->view, RBK_STATS_SECTION_DECISIONS);

	if (head > n && first < head - n)
		first = head - n;
	return first < head ? first : head;
}

static int compare_entries(const void *a, const void *b)
{
	const struct rbk_stats_decision *first = &((const struct log_entry *)a)->decision;
	const struct rbk_stats_decision *second = &((const struct log_entry *)b)->decision;

	return (first->ended_at_ns > second->ended_at_ns) -
	       (first->ended_at_ns < second->ended_at_ns);
}

void log_sort(struct log_entry *entries, size_t n_entries)
{
	qsort(entries, n_entries, sizeof(*entries), compare_entries);
}

int log_read(const struct pages *pages, struct log_entry **ret, size_t *ret_n)
{
	struct log_entry *entries;
	size_t n = 0, n_room = 0;

	for (unsigned int i = 0; i < pages->n_tenants; i++)
		n_room += rbk_stats_count(&pages->tenants[i].view, RBK_STATS_SECTION_DECISIONS);
	entries = calloc(n_room + 1, sizeof(*entries));
	if (!entries)
		return -ENOMEM;
	for (unsigned int i = 0; i < pages->n_tenants; i++) {
		const struct tenant_page *tenant = &pages->tenants[i];
		uint64_t head = log_head(tenant);

		for (uint64_t index = log_oldest(tenant, head); index < head && n < n_room;
		     index++) {
			entries[n].tenant = i;
			if (rbk_stats_decision(&tenant->view, index, &entries[n].decision))
				n++;
		}
	}
	log_sort(entries, n);
	*ret = entries;
	*ret_n = n;
	return 0;
}

uint64_t segments_head(const struct tenant_page *tenant, uint64_t *ret_oldest)
{
	const uint64_t n = rbk_stats_count(&tenant->view, RBK_STATS_SECTION_SEGMENTS);
	const uint64_t head =
		n ? log_member(tenant, offsetof(struct rbk_stats_tenant, segments_head)) : 0;

	*ret_oldest = head > n ? head - n : 0;
	return head;
}

int segments_read(const struct pages *pages, struct segment_entry **ret, size_t *ret_n)
{
	struct segment_entry *entries;
	size_t n = 0, n_room = 0;
	uint64_t head, index;

	for (unsigned int i = 0; i < pages->n_tenants; i++)
		n_room += rbk_stats_count(&pages->tenants[i].view, RBK_STATS_SECTION_SEGMENTS);
	entries = calloc(n_room + 1, sizeof(*entries));
	if (!entries)
		return -ENOMEM;
	for (unsigned int i = 0; i < pages->n_tenants; i++) {
		head = segments_head(&pages->tenants[i], &index);
		for (; index < head && n < n_room; index++) {
			entries[n].tenant = i;
			n += (size_t)rbk_stats_segment(&pages->tenants[i].view, index,
						       &entries[n].segment);
		}
	}
	*ret = entries;
	*ret_n = n;
	return 0;
}

/* Return true if the segments are all that the task has, none of which was overwritten. */
static bool is_whole(const struct segment_entry *entries, size_t n,
		     const struct rbk_stats_decision *task)
{
	const uint32_t n_segments = n > 0 ? entries[0].segment.n_segments : 0;

	if (n_segments == 0 || n > MAX_SEGMENTS)
		return false;
	for (size_t i = 0; i < n; i++)
		if (entries[i].segment.segment != i % n_segments ||
		    entries[i].segment.batch != i / n_segments ||
		    entries[i].segment.sequence != entries[0].segment.sequence + i)
			return false;
	return task->res < 0 || n == n_segments * n_batches_of(&entries[0].segment);
}

const struct segment_entry *segments_find(const struct segment_entry *entries, size_t n_entries,
					  unsigned int tenant,
					  const struct rbk_stats_decision *task, uint32_t *ret_n)
{
	const uint64_t index = task->sequence - 1;
	size_t low = 0, high = n_entries, middle, end;

	*ret_n = 0;
	while (low < high) {
		middle = low + (high - low) / 2;
		if (entries[middle].tenant < tenant ||
		    (entries[middle].tenant == tenant && entries[middle].segment.task < index))
			low = middle + 1;
		else
			high = middle;
	}
	for (end = low; end < n_entries && entries[end].tenant == tenant &&
			entries[end].segment.task == index;)
		end++;
	if (!is_whole(entries + low, end - low, task))
		return NULL;
	*ret_n = (uint32_t)(end - low);
	return &entries[low];
}

uint64_t slices_head(const struct tenant_page *tenant, uint64_t *ret_oldest)
{
	const uint64_t n = rbk_stats_count(&tenant->view, RBK_STATS_SECTION_SLICES);
	const uint64_t head =
		n ? log_member(tenant, offsetof(struct rbk_stats_tenant, slices_head)) : 0;

	*ret_oldest = head > n ? head - n : 0;
	return head;
}

bool slice_copy(const struct tenant_page *tenant, uint64_t index, struct rbk_stats_slice *ret)
{
	/* Sums of these times do not overflow. */
	static const uint64_t most_ns = UINT64_MAX / 4;

	return rbk_stats_slice(&tenant->view, index, ret) && ret->device < RBK_MAX_DEVICES &&
	       ret->ended_at_ns >= rbk_stats_load(&tenant->view.page->reset_at_ns) &&
	       ret->wanted_at_ns <= ret->began_at_ns && ret->began_at_ns <= ret->ended_at_ns &&
	       ret->closed_at_ns <= ret->ended_at_ns && ret->ended_at_ns < most_ns;
}

const char *slice_priority(uint8_t priority)
{
	static const char *const names[RBK_PRIORITY_COUNT] = {
		[RBK_PRIORITY_NORMAL] = "normal",
		[RBK_PRIORITY_LOW] = "background",
		[RBK_PRIORITY_HIGH] = "high",
		[RBK_PRIORITY_URGENT] = "urgent",
	};

	return priority < RBK_PRIORITY_COUNT ? names[priority] : "unknown";
}

static int compare_slices(const void *a, const void *b)
{
	const struct rbk_stats_slice *first = &((const struct slice_entry *)a)->slice;
	const struct rbk_stats_slice *second = &((const struct slice_entry *)b)->slice;

	if (first->device != second->device)
		return first->device < second->device ? -1 : 1;
	return (first->began_at_ns > second->began_at_ns) -
	       (first->began_at_ns < second->began_at_ns);
}

void slices_sort(struct slice_entry *entries, size_t n_entries)
{
	if (n_entries > 0)
		qsort(entries, n_entries, sizeof(*entries), compare_slices);
}

int slices_read(const struct pages *pages, struct slice_entry **ret, size_t *ret_n)
{
	struct slice_entry *entries;
	size_t n = 0, n_room = 0;
	uint64_t head, index;

	for (unsigned int i = 0; i < pages->n_tenants; i++)
		n_room += rbk_stats_count(&pages->tenants[i].view, RBK_STATS_SECTION_SLICES);
	entries = calloc(n_room + 1, sizeof(*entries));
	if (!entries)
		return -ENOMEM;
	for (unsigned int i = 0; i < pages->n_tenants; i++) {
		head = slices_head(&pages->tenants[i], &index);
		for (; index < head && n < n_room; index++) {
			entries[n].tenant = i;
			n += slice_copy(&pages->tenants[i], index, &entries[n].slice);
		}
	}
	slices_sort(entries, n);
	*ret = entries;
	*ret_n = n;
	return 0;
}

unsigned int resets_read(const struct pages *pages,
			 struct rbk_stats_reset ret[static RBK_STATS_ALL_RESETS])
{
	struct rbk_stats_broker broker;
	unsigned int n = 0;

	if (pages->root.page) {
		page_copy(&pages->root, RBK_STATS_SECTION_BROKER, 0, &broker, sizeof(broker));
		for (unsigned int i = 0; i < RBK_STATS_ALL_RESETS; i++) {
			ret[n] = broker.resets[i];
			ret[n].name[sizeof(ret[n].name) - 1] = '\0';
			n += ret[n].at_ns > 0;
		}
		return n;
	}
	for (unsigned int t = 0; t < pages->n_tenants; t++)
		for (uint32_t i = 0; i < RBK_STATS_RESETS && n < RBK_STATS_ALL_RESETS; i++)
			n += (unsigned int)rbk_stats_reset_copy(&pages->tenants[t].view, i,
								&ret[n]);
	return n;
}

const struct slice_entry *slices_after(const struct slice_entry *entries, size_t n_entries,
				       const struct slice_entry *entry)
{
	/* Times are converted to the broker's clock one by one. */
	static const uint64_t slack_ns = 1000;
	struct slice_entry key = *entry;
	size_t low = 0, high = n_entries;

	if (entry->slice.closed_at_ns == 0)
		return NULL;
	key.slice.began_at_ns = entry->slice.closed_at_ns - slack_ns;
	while (low < high) {
		const size_t middle = low + (high - low) / 2;

		if (compare_slices(&entries[middle], &key) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	for (; low < n_entries && entries[low].slice.device == entry->slice.device; low++) {
		const struct rbk_stats_slice *next = &entries[low].slice;

		if (entries[low].tenant != entry->tenant && next->wanted_at_ns > 0 &&
		    next->wanted_at_ns <= entry->slice.closed_at_ns + slack_ns)
			return &entries[low];
	}
	return NULL;
}

static int compare_refused(const void *a, const void *b)
{
	const struct rbk_stats_refused *first = &((const struct refused_entry *)a)->refused;
	const struct rbk_stats_refused *second = &((const struct refused_entry *)b)->refused;

	if (first->refused_at_ns != second->refused_at_ns)
		return first->refused_at_ns < second->refused_at_ns ? -1 : 1;
	return (first->sequence > second->sequence) - (first->sequence < second->sequence);
}

/* Replace bytes that could steer a terminal: a reason names tensors as their client did. */
static void make_printable(char *text)
{
	for (; *text; text++)
		if (*text < ' ' || *text > '~')
			*text = '?';
}

int refused_read(const struct pages *pages, struct refused_entry **ret, size_t *ret_n)
{
	struct refused_entry *entries;
	size_t n = 0, n_room = 0;

	for (unsigned int i = 0; i < pages->n_tenants; i++)
		n_room += rbk_stats_count(&pages->tenants[i].view, RBK_STATS_SECTION_REFUSED);
	entries = calloc(n_room + 1, sizeof(*entries));
	if (!entries)
		return -ENOMEM;
	for (unsigned int i = 0; i < pages->n_tenants; i++) {
		const struct rbk_stats_view *view = &pages->tenants[i].view;
		uint64_t reset_at_ns = rbk_stats_load(&view->page->reset_at_ns);

		for (uint32_t k = 0; k < rbk_stats_count(view, RBK_STATS_SECTION_REFUSED); k++) {
			struct rbk_stats_refused *refused = &entries[n].refused;

			if (!rbk_stats_refused(view, k, refused) ||
			    refused->refused_at_ns < reset_at_ns)
				continue;
			make_printable(refused->field);
			make_printable(refused->reason);
			entries[n++].tenant = i;
		}
	}
	qsort(entries, n, sizeof(*entries), compare_refused);
	*ret = entries;
	*ret_n = n;
	return 0;
}

uint32_t log_plan_name(const struct tenant_page *tenant, const struct rbk_stats_decision *decision,
		       char name[RBK_NAME_BYTES])
{
	union plan_copy plan;

	name[0] = '\0';
	/* The slot may have been reused for another plan. */
	if (!page_copy_plan(&tenant->view, decision->plan, &plan) ||
	    plan.plan.plan_id != decision->plan_id || plan.plan.session != decision->session)
		return 0;
	memcpy(name, plan.plan.name, RBK_NAME_BYTES);
	return plan.plan.n_segments;
}

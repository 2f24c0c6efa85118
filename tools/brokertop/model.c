/* SPDX-License-Identifier: MIT */
/*
 * Model: copying pages
 *
 * Records are copied when the broker has updated them, a few times a second, regardless of how
 * often the picture is drawn. If a record has a new owner, its counts start with the new owner's.
 *
 * Figures in a page may have any value, and their sums may overflow. They only affect bars and
 * columns, which are bounded.
 */
#include "model-private.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "shm/stats-figures.h"

enum { DECISIONS_PER_PAGE = 256 };

#define END(text) ((text)[sizeof(text) - 1] = '\0')

int model_init(struct model *model)
{
	*model = (struct model){.n_devices = 0};
	model->devices = calloc(RBK_MAX_DEVICES, sizeof(*model->devices));
	model->decisions = calloc(MODEL_MAX_DECISIONS, sizeof(*model->decisions));
	if (!model->devices || !model->decisions) {
		model_deinit(model);
		return -ENOMEM;
	}
	return 0;
}

static void forget_tenants(struct model *model, uint32_t first)
{
	for (uint32_t i = first; i < model->n_tenants; i++) {
		free(model->tenants[i].delay);
		history_forget(model, &model->tenants[i]);
		model->tenants[i] = (struct model_tenant){.is_used = false};
	}
}

void model_deinit(struct model *model)
{
	forget_tenants(model, 0);
	free(model->devices);
	free(model->tenants);
	free(model->sessions);
	free(model->leases);
	free(model->plans);
	free(model->decisions);
	free(model->index);
	*model = (struct model){.n_devices = 0};
}

/* Resize an array to @n records of @size bytes; keep existing records and zero new ones. */
static int resize(void **records, uint32_t *n_records, uint32_t n, size_t size)
{
	char *grown;

	if (n == *n_records)
		return 0;
	grown = realloc(*records, ((size_t)n + 1) * size);
	if (!grown)
		return -ENOMEM;
	if (n > *n_records)
		memset(grown + *n_records * size, 0, (n - *n_records) * size);
	*records = grown;
	*n_records = n;
	return 0;
}

/* --- Tenants by number --- */

static uint32_t *index_place(const struct model *model, uint32_t number)
{
	uint32_t at = number * 2654435761u & model->index_mask;

	while (model->index[at] && model->tenants[model->index[at] - 1].now.number != number)
		at = (at + 1) & model->index_mask;
	return &model->index[at];
}

/* Build the hash table of tenants. It has free slots at all times. */
static int index_tenants(struct model *model)
{
	uint32_t n = 16, *index;

	while (n < 2 * model->n_tenants)
		n *= 2;
	if (!model->index || n != model->index_mask + 1) {
		index = realloc(model->index, n * sizeof(*index));
		if (!index)
			return -ENOMEM;
		model->index = index;
		model->index_mask = n - 1;
	}
	memset(model->index, 0, n * sizeof(*model->index));
	for (uint32_t i = 0; i < model->n_tenants; i++)
		if (model->tenants[i].is_used)
			*index_place(model, model->tenants[i].now.number) = i + 1;
	return 0;
}

const struct model_tenant *model_tenant(const struct model *model, uint32_t number)
{
	uint32_t place = model->index ? *index_place(model, number) : 0;

	return place ? &model->tenants[place - 1] : NULL;
}

const char *model_causer(const struct model_tenant *tenant)
{
	const struct rbk_stats_delay *delay = tenant->delay;

	if (!tenant->has_delay || delay->n_causes == 0)
		return "";
	return cause_name(&delay->causes[0]);
}

const struct model_plan *model_plan(const struct model *model, uint32_t tenant, uint32_t slot)
{
	for (uint32_t i = 0; i < model->n_plans; i++)
		if (model->plans[i].tenant == tenant && model->plans[i].slot == slot)
			return &model->plans[i];
	return NULL;
}

const struct model_lease *model_lease(const struct model *model, uint32_t number)
{
	for (uint32_t i = 0; i < model->n_leases; i++)
		if (number && model->leases[i].now.number == number)
			return &model->leases[i];
	return NULL;
}

/* --- Copies --- */

static void end_causes(struct rbk_stats_delay *delay)
{
	if (delay->n_causes > RBK_STATS_MAX_CAUSES)
		delay->n_causes = RBK_STATS_MAX_CAUSES;
	for (uint32_t i = 0; i < delay->n_causes; i++) {
		END(delay->causes[i].comm);
		END(delay->causes[i].cgroup);
	}
}

static void copy_devices(struct model *model, const struct rbk_stats_view *view)
{
	uint32_t n = rbk_stats_count(view, RBK_STATS_SECTION_DEVICES);

	if (n > view->n_devices)
		n = view->n_devices;
	for (uint32_t i = 0; i < n; i++) {
		struct rbk_stats_device *device = &model->devices[i].now;
		const uint64_t n_tasks = device->n_tasks;

		page_copy(view, RBK_STATS_SECTION_DEVICES, i, device, sizeof(*device));
		END(device->name);
		END(device->driver);
		END(device->paths);
		if (!model->is_settled)
			device->utilization = NAN;
		if (device->n_tasks < n_tasks)
			rates_forget_device(&model->devices[i]);
	}
	model->n_devices = n;
}

/*
 * Copy the delays of a tenant, into memory allocated on demand: few tenants are watched, and a
 * record is long.
 * Return: 0, or -ENOMEM.
 */
static int copy_delay(struct model_tenant *tenant, const struct rbk_stats_view *view,
		      uint32_t index)
{
	uint64_t head;

	page_copy(view, RBK_STATS_SECTION_DELAYS, index, &head, sizeof(head));
	tenant->has_delay = head >> 32 & RBK_STATS_DELAY_USED;
	if (!tenant->has_delay)
		return 0;
	if (!tenant->delay)
		tenant->delay = calloc(1, sizeof(*tenant->delay));
	if (!tenant->delay) {
		tenant->has_delay = false;
		return -ENOMEM;
	}
	page_copy(view, RBK_STATS_SECTION_DELAYS, index, tenant->delay, sizeof(*tenant->delay));
	end_causes(tenant->delay);
	return 0;
}

/*
 * Copy a tenant that was copied at the update before, without its histograms, which are read at the
 * end of an interval.
 * Return: false if the record has another owner by now, or if its counts were reset.
 */
static bool copy_known_tenant(struct model *model, struct model_tenant *tenant,
			      const struct rbk_stats_view *view, uint32_t index, uint32_t number)
{
	const uint64_t n_tasks = tenant->now.n_tasks, n_evictions = tenant->now.n_evictions;

	page_copy(view, RBK_STATS_SECTION_TENANTS, index, &tenant->now,
		  offsetof(struct rbk_stats_tenant, queue_histogram));
	if (tenant->now.number != number)
		return false;
	/* An update before the interval's beginning may have had older counts. */
	if (tenant->then_ns && tenant->now.n_evictions > n_evictions)
		model->new_evictions += (double)(tenant->now.n_evictions - n_evictions);
	return tenant->now.n_tasks >= n_tasks;
}

/* Return: 0, or -ENOMEM. */
static int copy_tenant(struct model *model, struct model_tenant *tenant,
		       const struct rbk_stats_view *view, uint32_t index, uint32_t only)
{
	/* Read only the head of records that are not in use. */
	uint64_t head[2];
	uint32_t number, flags, before = tenant->now.number;
	const bool was_used = tenant->is_used;

	page_copy(view, RBK_STATS_SECTION_TENANTS, index, head, sizeof(head));
	number = (uint32_t)(head[0] >> 32);
	flags = (uint32_t)head[1];
	tenant->is_used = (flags & RBK_STATS_TENANT_USED) && (only == 0 || only == number);
	if (!tenant->is_used)
		return 0;
	if (!was_used || before != number ||
	    !copy_known_tenant(model, tenant, view, index, number)) {
		page_copy(view, RBK_STATS_SECTION_TENANTS, index, &tenant->now,
			  sizeof(tenant->now));
		rates_forget_tenant(tenant);
	}
	/* The record had another owner a moment ago. */
	tenant->is_used = tenant->now.number == number;
	if (before != tenant->now.number)
		history_forget(model, tenant);
	END(tenant->now.name);
	for (uint32_t i = 0; i < RBK_MAX_DEVICES && !model->is_settled; i++)
		tenant->now.devices[i].share = NAN;
	return copy_delay(tenant, view, index);
}

/* Return the sum of the weights of all tenants with sessions except @only. */
static double weight_of_others(const struct rbk_stats_view *view, uint32_t only)
{
	struct rbk_stats_tenant other;
	double sum = 0;

	for (uint32_t i = 0; only && i < rbk_stats_used(view, RBK_STATS_SECTION_TENANTS); i++) {
		page_copy(view, RBK_STATS_SECTION_TENANTS, i, &other,
			  offsetof(struct rbk_stats_tenant, devices));
		if ((other.flags & RBK_STATS_TENANT_USED) && other.number != only &&
		    other.n_sessions > 0)
			sum += other.weight;
	}
	return sum;
}

/* Compute the totals that rows show fractions of. */
static void sum_tenants(struct model *model)
{
	model->weight_of_all = model->weight_of_others;
	for (uint32_t i = 0; i < model->n_devices; i++)
		model->devices[i].reserved_bytes = 0;
	for (uint32_t i = 0; i < model->n_tenants; i++) {
		const struct model_tenant *tenant = &model->tenants[i];

		if (!tenant->is_used)
			continue;
		if (tenant->now.n_sessions > 0)
			model->weight_of_all += tenant->now.weight;
		for (uint32_t k = 0; k < model->n_devices; k++) {
			const struct rbk_stats_tenant_device *memory = &tenant->now.devices[k];

			if (memory->memory_reserve > memory->memory_used)
				model->devices[k].reserved_bytes +=
					(double)(memory->memory_reserve - memory->memory_used);
		}
	}
}

static int copy_tenants(struct model *model, const struct rbk_stats_view *view, uint32_t only)
{
	const uint32_t n = rbk_stats_used(view, RBK_STATS_SECTION_TENANTS);
	int r;

	forget_tenants(model, n);
	r = resize((void **)&model->tenants, &model->n_tenants, n, sizeof(*model->tenants));
	for (uint32_t i = 0; i < n && r == 0; i++)
		r = copy_tenant(model, &model->tenants[i], view, i, only);
	if (r)
		return r;
	model->is_one = only != 0;
	model->weight_of_others = weight_of_others(view, only);
	sum_tenants(model);
	return index_tenants(model);
}

static int copy_sessions(struct model *model, const struct rbk_stats_view *view)
{
	int r = resize((void **)&model->sessions, &model->n_sessions,
		       rbk_stats_used(view, RBK_STATS_SECTION_SESSIONS), sizeof(*model->sessions));

	if (r)
		return r;
	model->n_connected = 0;
	model->n_resident = 0;
	for (uint32_t i = 0; i < model->n_sessions; i++) {
		struct model_session *session = &model->sessions[i];
		const uint64_t n_tasks = session->now.n_tasks;
		uint64_t head;

		page_copy(view, RBK_STATS_SECTION_SESSIONS, i, &head, sizeof(head));
		if (head >> 32 == 0) {
			session->now.number = 0;
			continue;
		}
		page_copy(view, RBK_STATS_SECTION_SESSIONS, i, &session->now, sizeof(session->now));
		END(session->now.name);
		END(session->now.comm);
		session->tenant = model_tenant(model, session->now.tenant);
		model->n_connected++;
		model->n_resident += session->now.n_plans_resident;
		if (!model->is_settled)
			session->now.p50_ns = session->now.p99_ns = 0;
		if (session->then_number != session->now.number || session->now.n_tasks < n_tasks)
			rates_forget_session(session);
		session->then_number = session->now.number;
	}
	return 0;
}

/* Add up each tenant's memory that is granted to leases. */
static void sum_leases(struct model *model)
{
	for (uint32_t i = 0; i < model->n_tenants; i++)
		memset(model->tenants[i].leased_bytes, 0, sizeof(model->tenants[i].leased_bytes));
	for (uint32_t i = 0; i < model->n_leases; i++) {
		const struct model_lease *lease = &model->leases[i];
		/* The model owns the tenant; it is not const. */
		struct model_tenant *tenant = (struct model_tenant *)lease->tenant;

		if (lease->now.number && tenant && lease->now.device < RBK_MAX_DEVICES)
			tenant->leased_bytes[lease->now.device] += lease->now.granted_bytes;
	}
}

static int copy_leases(struct model *model, const struct rbk_stats_view *view)
{
	int r = resize((void **)&model->leases, &model->n_leases,
		       rbk_stats_used(view, RBK_STATS_SECTION_LEASES), sizeof(*model->leases));

	if (r)
		return r;
	for (uint32_t i = 0; i < model->n_leases; i++) {
		struct model_lease *lease = &model->leases[i];
		const uint64_t slice_ns = lease->now.slice_ns;
		uint64_t head;

		page_copy(view, RBK_STATS_SECTION_LEASES, i, &head, sizeof(head));
		lease->now.number = 0;
		if (head >> 32 == 0)
			continue;
		page_copy_lease(view, i, &lease->now);
		END(lease->now.name);
		lease->tenant = model_tenant(model, lease->now.tenant);
		if (lease->then_number != lease->now.number || lease->now.slice_ns < slice_ns)
			rates_forget_lease(lease);
		lease->then_number = lease->now.number;
	}
	sum_leases(model);
	return 0;
}

/* Summarise the waits of all worker threads, which share the tasks. */
static void copy_workers(struct model *model, const struct rbk_stats_view *root)
{
	uint64_t all_ns = 0;

	model->worker_p99_ns = 0;
	model->worst_part = 0;
	model->worst = (struct rbk_stats_cause){.pid = 0};
	for (uint32_t i = 0; i < rbk_stats_count(root, RBK_STATS_SECTION_THREADS); i++) {
		struct rbk_stats_thread thread;

		page_copy(root, RBK_STATS_SECTION_THREADS, i, &thread, sizeof(thread));
		if (thread.tid == 0)
			break;
		if (thread.role != RBK_STATS_ROLE_WORKER)
			continue;
		end_causes(&thread.delay);
		all_ns += thread.delay.wait_ns;
		if ((double)thread.delay.p99_ns > model->worker_p99_ns)
			model->worker_p99_ns = (double)thread.delay.p99_ns;
		if (thread.delay.n_causes > 0 &&
		    thread.delay.causes[0].wait_ns > model->worst.wait_ns)
			model->worst = thread.delay.causes[0];
	}
	if (all_ns > 0 && model->worst.wait_ns > 0)
		model->worst_part = fmin(1, (double)model->worst.wait_ns / (double)all_ns);
}

/* --- Plans and decisions, of tenants' pages --- */

static void copy_plan(struct model_plan *plan, const struct tenant_page *page, uint32_t slot)
{
	const uint32_t n_devices = page->view.n_devices;
	const uint64_t n_tasks_before = plan->n_tasks;
	double error_ns = 0, predicted_ns = 0;
	union plan_copy copy;

	page_copy_plan(&page->view, slot, &copy);
	memcpy(&plan->now, &copy.plan, sizeof(plan->now));
	plan->tenant = page->number;
	memcpy(plan->tenant_name, page->name, sizeof(plan->tenant_name));
	plan->slot = slot;
	plan->n_tasks = 0;
	plan->gpu = plan_fastest_gpu(&copy.plan, n_devices, false);
	plan->gpu_now = plan_fastest_gpu(&copy.plan, n_devices, true);
	plan->gpu_ns = plan->gpu_now_ns = plan->speedup = 0;
	plan->state = RBK_MEMORY_UNSUPPORTED;
	plan->tier = RBK_TIER_NONE;
	plan->resident_bytes = plan->footprint_bytes = 0;
	plan->cpu_ns = copy.plan.devices[RBK_DEVICE_CPU].estimate_ns;
	plan->cpu_now_ns = stats_now_ns(&copy.plan.devices[RBK_DEVICE_CPU]);
	for (uint32_t i = 0; i < n_devices; i++) {
		const struct rbk_stats_plan_device *device = &copy.plan.devices[i];

		plan->n_tasks += device->n_tasks;
		error_ns += (double)device->error_ns;
		predicted_ns += (double)device->predicted_exec_ns;
		if (!model_is_gpu(i) || device->state == RBK_MEMORY_UNSUPPORTED)
			continue;
		plan->resident_bytes += device->resident_bytes;
		if (plan->gpu == 0)
			plan->gpu = i;
	}
	if (plan->gpu) {
		const struct rbk_stats_plan_device *device = &copy.plan.devices[plan->gpu];

		plan->gpu_ns = device->estimate_ns;
		plan->speedup = device->speedup;
		plan->state = device->state;
		plan->tier = device->tier;
		plan->footprint_bytes = device->footprint_bytes;
	}
	if (plan->gpu_now)
		plan->gpu_now_ns = stats_now_ns(&copy.plan.devices[plan->gpu_now]);
	plan->error = predicted_ns > 0 ? error_ns / predicted_ns : MODEL_UNKNOWN;
	plan->window_error = MODEL_UNKNOWN;
	plan->is_trusted = false;
	if (plan->now.last_device < n_devices && plan->n_tasks > 0) {
		plan->window_error = copy.plan.devices[plan->now.last_device].mean_error;
		plan->is_trusted = copy.plan.devices[plan->now.last_device].is_trusted;
	}
	if (plan->then_made_at_ns != plan->now.made_at_ns || plan->n_tasks < n_tasks_before)
		rates_forget_plan(plan);
	plan->then_made_at_ns = plan->now.made_at_ns;
}

/*
 * Return the number of slots in use. Slots are used in order, so the first free slot ends the
 * plans.
 */
static uint32_t count_slots(const struct tenant_page *page)
{
	uint32_t n = 0;

	for (; n < rbk_stats_count(&page->view, RBK_STATS_SECTION_PLANS); n++) {
		const struct rbk_stats_plan *plan =
			rbk_stats_record(&page->view, RBK_STATS_SECTION_PLANS, n);

		if (__atomic_load_n(&plan->state, __ATOMIC_RELAXED) == RBK_STATS_PLAN_FREE)
			break;
	}
	return n;
}

/*
 * Return the known data of a plan, or zeros. Plans keep their order, so the search starts after the
 * last one found.
 */
static struct model_plan known_plan(const struct model_plan *plans, uint32_t n, uint32_t *next,
				    uint32_t tenant, uint32_t slot)
{
	for (uint32_t i = *next; i < n; i++)
		if (plans[i].tenant == tenant && plans[i].slot == slot) {
			*next = i + 1;
			return plans[i];
		}
	return (struct model_plan){.tenant = tenant, .tasks_per_s = MODEL_UNKNOWN};
}

static int copy_plans(struct model *model, const struct pages *pages, uint32_t only)
{
	struct model_plan *plans;
	uint32_t n = 0, n_room = 1, next = 0;

	for (unsigned int i = 0; i < pages->n_tenants; i++)
		n_room += count_slots(&pages->tenants[i]);
	plans = malloc(n_room * sizeof(*plans));
	if (!plans)
		return -ENOMEM;
	for (unsigned int i = 0; i < pages->n_tenants; i++) {
		const struct tenant_page *page = &pages->tenants[i];
		/* Tenants may have added plans since the first count. */
		uint32_t n_slots = only == 0 || page->number == only ? count_slots(page) : 0;

		for (uint32_t slot = 0; slot < n_slots && n < n_room; slot++) {
			plans[n] =
				known_plan(model->plans, model->n_plans, &next, page->number, slot);
			copy_plan(&plans[n++], page, slot);
		}
	}
	free(model->plans);
	model->plans = plans;
	model->n_plans = n;
	return 0;
}

static int compare_decisions(const void *a, const void *b)
{
	const struct rbk_stats_decision *left = a, *right = b;

	return (left->ended_at_ns < right->ended_at_ns) - (left->ended_at_ns > right->ended_at_ns);
}

static uint64_t log_member(const struct tenant_page *page, size_t offset)
{
	const char *record = rbk_stats_record(&page->view, RBK_STATS_SECTION_TENANTS, 0);

	return record ? __atomic_load_n((const uint64_t *)(record + offset), __ATOMIC_ACQUIRE) : 0;
}

/* Copy the latest records of each log, so that they include the newest of all. */
static void copy_decisions(struct model *model, const struct pages *pages, uint32_t only)
{
	uint32_t each = pages->n_tenants ? MODEL_MAX_DECISIONS / pages->n_tenants : 0, n = 0;

	each = only || each > DECISIONS_PER_PAGE ? DECISIONS_PER_PAGE : each;
	for (unsigned int i = 0; i < pages->n_tenants; i++) {
		const struct tenant_page *page = &pages->tenants[i];
		uint64_t head = log_member(page, offsetof(struct rbk_stats_tenant, log_head));
		uint64_t first = log_member(page, offsetof(struct rbk_stats_tenant, log_first));

		if (only && page->number != only)
			continue;
		for (uint32_t back = 1; back <= each && back <= head && n < MODEL_MAX_DECISIONS;
		     back++) {
			struct model_decision *decision = &model->decisions[n];
			struct rbk_stats_plan plan;

			if (head - back < first)
				break;
			if (!rbk_stats_decision(&page->view, head - back, &decision->now))
				continue;
			decision->tenant = page->number;
			memcpy(decision->tenant_name, page->name, sizeof(decision->tenant_name));
			decision->plan_name[0] = '\0';
			/* The slot may have been reused for another plan. */
			page_copy(&page->view, RBK_STATS_SECTION_PLANS, decision->now.plan, &plan,
				  sizeof(plan));
			END(plan.name);
			if (plan.state != RBK_STATS_PLAN_FREE &&
			    plan.plan_id == decision->now.plan_id &&
			    plan.session == decision->now.session)
				memcpy(decision->plan_name, plan.name, RBK_NAME_BYTES);
			n++;
		}
	}
	qsort(model->decisions, n, sizeof(*model->decisions), compare_decisions);
	model->n_decisions = n;
}

/* Forget all records and counts that later ones are compared with. */
static void rebase(struct model *model)
{
	for (uint32_t i = 0; i < model->n_tenants; i++)
		model->tenants[i].is_used = false;
	for (uint32_t i = 0; i < RBK_MAX_DEVICES; i++)
		rates_forget_device(&model->devices[i]);
	for (uint32_t i = 0; i < model->n_sessions; i++)
		rates_forget_session(&model->sessions[i]);
	for (uint32_t i = 0; i < model->n_plans; i++)
		rates_forget_plan(&model->plans[i]);
	model->has_rates = model->has_seen = model->knows_evictions = false;
	model->latency_p99_ns = 0;
	model->then_ns = 0;
}

/* Forget the plans, since their counts go on while they are not read. */
static void drop_plans(struct model *model)
{
	free(model->plans);
	model->plans = NULL;
	model->n_plans = 0;
}

/* --- All of it --- */

/* Return: true if there is something to read. */
static bool read_header(struct model *model, const struct pages *pages)
{
	const struct rbk_stats_view *view =
		pages->root.page ? &pages->root
				 : (pages->n_tenants ? &pages->tenants[0].view : NULL);
	const struct rbk_stats_header *page = view ? view->page : NULL;
	uint64_t updated_at_ns, n_updates;
	bool is_other;

	if (!page)
		return false;
	updated_at_ns = rbk_stats_load(&page->updated_at_ns);
	n_updates = rbk_stats_load(&page->n_updates);
	is_other = model->has_page &&
		   (model->pid != page->pid || model->started_at_ns != page->started_at_ns);
	/* Another broker's tenants have the same numbers. */
	for (uint32_t i = 0; i < model->n_tenants && is_other; i++)
		history_forget(model, &model->tenants[i]);
	if (!model->has_page || is_other || model->is_root != (page->kind == RBK_STATS_ROOT) ||
	    updated_at_ns < model->updated_at_ns) {
		rebase(model);
		if (!model->has_page)
			history_clear(model);
		model->has_page = true;
	}
	model->is_root = page->kind == RBK_STATS_ROOT;
	model->pid = page->pid;
	model->started_at_ns = page->started_at_ns;
	model->period_ns = page->period_ns;
	model->updated_at_ns = updated_at_ns;
	model->n_updates = n_updates;
	model->realtime_offset_ns = __atomic_load_n(&page->realtime_offset_ns, __ATOMIC_RELAXED);
	model->n_resets = rbk_stats_load(&page->n_resets);
	model->is_closed = __atomic_load_n(&page->flags, __ATOMIC_ACQUIRE) & RBK_STATS_CLOSED;
	return true;
}

int model_update(struct model *model, const struct pages *pages, uint32_t only, unsigned int what)
{
	const struct rbk_stats_view *view =
		pages->root.page ? &pages->root
				 : (pages->n_tenants ? &pages->tenants[0].view : NULL);
	int r;

	if (!read_header(model, pages))
		return 0;
	if (what & MODEL_DECISIONS)
		copy_decisions(model, pages, only);
	if (model->n_updates == model->seen_updates && model->has_seen &&
	    model->seen_what == what && model->seen_pages == pages->n_tenants)
		return 0;
	model->is_settled = !(what & MODEL_UNSETTLED);
	if (!model->is_settled || (model->is_resumed && model->n_updates != model->seen_updates))
		rebase(model);
	model->has_seen = model->is_resumed = false;
	model->new_evictions = 0;
	if (!(what & MODEL_PLANS))
		drop_plans(model);
	copy_devices(model, view);
	page_copy(view, RBK_STATS_SECTION_BROKER, 0, &model->broker, sizeof(model->broker));
	page_copy(view, RBK_STATS_SECTION_UPKEEP, 0, &model->upkeep, sizeof(model->upkeep));
	page_copy(view, RBK_STATS_SECTION_CONTENTION, 0, &model->contention,
		  sizeof(model->contention));
	copy_workers(model, view);
	r = copy_tenants(model, view, only);
	if (r == 0)
		r = copy_sessions(model, view);
	if (r == 0)
		r = copy_leases(model, view);
	if (r == 0 && (what & MODEL_PLANS))
		r = copy_plans(model, pages, only);
	if (r)
		return r;
	model->has_seen = true;
	model->seen_updates = model->n_updates;
	model->seen_what = what;
	model->seen_pages = pages->n_tenants;

	model->knows_evictions = model->then_ns != 0;
	if (model->is_settled)
		rates_update(model, view);
	history_sample(model);
	return 0;
}

void model_resume(struct model *model)
{
	model->is_resumed = true;
}

/* SPDX-License-Identifier: MIT */
/*
 * Clients for tests of placement: see placement.h
 *
 * Operand [N,N] is a sum of cyclic shifts with small factors: three elements of each row are not 0.
 * Results are therefore small integers, and quick to check.
 */
#include "integration/placement.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/failing-layer.h"
#include "support/test.h"

static float input(uint32_t row, uint32_t k)
{
	return (float)((int)((row * 7 + k * 3) % 5) - 2);
}

/* Return the weight of input column (@j + @i) % N in column @j of the result. */
static float factor(uint32_t i, uint32_t j)
{
	return (float)(i + 1 + j % 3);
}

static uint64_t rows_bytes(const struct customer *customer)
{
	return (uint64_t)customer->options.max_rows * customer->options.width * sizeof(float);
}

/* Return the matrix's offset in the arena, which holds the input, the matrix and the outputs. */
static uint64_t matrix_at(const struct customer *customer)
{
	return rows_bytes(customer);
}

static uint64_t output_at(const struct customer *customer, uint32_t slot)
{
	const uint64_t width = customer->options.width;

	return rows_bytes(customer) * (1 + (uint64_t)slot) + width * width * sizeof(float);
}

static float *at(const struct customer *customer, uint64_t offset)
{
	return (float *)((char *)rbk_arena_data(customer->arena) + offset);
}

static void fill(struct customer *customer)
{
	const uint32_t n = customer->options.width;
	float *x = at(customer, 0), *w = at(customer, matrix_at(customer));

	for (uint32_t row = 0; row < customer->options.max_rows; row++)
		for (uint32_t k = 0; k < n; k++)
			x[row * n + k] = input(row, k);
	memset(w, 0, (size_t)n * n * sizeof(float));
	for (uint32_t j = 0; j < n; j++)
		for (uint32_t i = 0; i < 3; i++)
			w[(j + i) % n * n + j] = factor(i, j);
	if (customer->constants)
		memcpy(rbk_arena_data(customer->constants), w, (size_t)n * n * sizeof(float));
}

struct rbk_plan *customer_plan(struct customer *customer, unsigned int pinned)
{
	const uint32_t n = customer->options.width;
	const uint32_t rows[] = {RBK_DIM_COUNT, n}, square[] = {n, n};
	struct rbk_builder *b = rbk_builder_new("product");
	struct rbk_error error = {""};
	struct rbk_plan *plan = NULL;
	unsigned int x, w, y;

	x = rbk_builder_input(b, "x", RBK_DTYPE_F32, 2, rows);
	if (customer->constants)
		w = rbk_builder_constant(b, "w", RBK_DTYPE_F32, 2, square, customer->constants, 0);
	else
		w = rbk_builder_input(b, "w", RBK_DTYPE_F32, 2, square);
	y = rbk_builder_output(b, "y", RBK_DTYPE_F32, 2, rows);
	rbk_builder_binary(b, "MatMul", x, w, y);
	if (pinned > 0)
		rbk_builder_pin_device(b, pinned - 1);
	if (rbk_plan_new(customer->rbk, b, customer->options.max_rows, &plan, &error))
		fail_msg("%s", error.text);
	rbk_builder_free(b);
	return plan;
}

static void customer_connect(struct customer *customer, const struct broker *broker)
{
	const uid_t uid = customer->options.uid;

	if (uid)
		harness_become(uid);
	customer->rbk = broker_connect(broker, "customer");
	if (uid)
		harness_become(0);
}

void customer_init(struct customer *customer, const struct broker *broker,
		   const struct customer_options *options)
{
	struct customer_options *own = &customer->options;
	struct rbk_error error = {""};
	size_t matrix_bytes;

	*customer = (struct customer){.n_done = 0};
	if (options)
		*own = *options;
	own->width = own->width ? own->width : 64;
	own->max_rows = own->max_rows ? own->max_rows : 256;
	own->n_entries = own->n_entries ? own->n_entries : 64;
	matrix_bytes = (size_t)own->width * own->width * sizeof(float);

	customer_connect(customer, broker);
	if (rbk_arena_new(customer->rbk, output_at(customer, own->n_entries), &customer->arena,
			  &error))
		fail_msg("%s", error.text);
	if (own->has_constant)
		assert_int_equal(
			rbk_arena_new(customer->rbk, matrix_bytes, &customer->constants, NULL), 0);
	fill(customer);
	if (customer->constants)
		assert_int_equal(rbk_arena_seal(customer->constants, NULL), 0);
	assert_int_equal(rbk_ring_new(customer->rbk, own->n_entries, &customer->ring, NULL), 0);
	if (!own->has_no_stats &&
	    rbk_stats_map(customer->rbk, RBK_STATS_OWN, 0, &customer->stats, &error))
		fail_msg("%s", error.text);
	if (!own->has_no_stats)
		customer->next_record = customer_totals(customer).log_head;
	customer->plan = customer_plan(customer, own->pinned);

	customer->free_slots = calloc(own->n_entries, sizeof(uint32_t));
	customer->counts = calloc(own->n_entries, sizeof(uint32_t));
	assert_non_null(customer->free_slots);
	assert_non_null(customer->counts);
	while (customer->n_free < own->n_entries) {
		customer->free_slots[customer->n_free] = customer->n_free;
		customer->n_free++;
	}
}

void customer_deinit(struct customer *customer)
{
	if (!customer->options.has_no_stats)
		rbk_stats_unmap(&customer->stats);
	rbk_plan_free(customer->plan);
	rbk_ring_free(customer->ring);
	rbk_arena_free(customer->constants);
	rbk_arena_free(customer->arena);
	rbk_disconnect(customer->rbk);
	free(customer->free_slots);
	free(customer->counts);
	*customer = (struct customer){.n_done = 0};
}

struct rbk_sqe *customer_prepare(struct customer *customer, uint32_t count)
{
	struct rbk_sqe *sqe;
	uint64_t refs[3];
	unsigned int n = 0;
	uint32_t slot;

	if (customer->n_free == 0)
		return NULL;
	sqe = rbk_get_sqe(customer->ring);
	if (!sqe)
		return NULL;
	slot = customer->free_slots[--customer->n_free];
	customer->counts[slot] = count;
	if (!customer->options.is_careless && count <= customer->options.max_rows)
		memset(at(customer, output_at(customer, slot)), 0xff,
		       (size_t)count * customer->options.width * sizeof(float));
	refs[n++] = rbk_arena_ref(customer->arena, 0);
	if (!customer->constants)
		refs[n++] = rbk_arena_ref(customer->arena, matrix_at(customer));
	refs[n++] = rbk_arena_ref(customer->arena, output_at(customer, slot));
	rbk_prep_run(sqe, rbk_plan_id(customer->plan), count, refs, n);
	rbk_sqe_set_data64(sqe, slot);
	return sqe;
}

void customer_put(struct customer *customer, uint32_t count, unsigned int strategy)
{
	struct rbk_sqe *sqe = customer_prepare(customer, count);

	assert_non_null(sqe);
	rbk_sqe_set_strategy(sqe, strategy);
	assert_int_equal(rbk_submit(customer->ring), 1);
}

static void check(struct customer *customer, uint32_t slot)
{
	const uint32_t n = customer->options.width, count = customer->counts[slot];
	const float *y = at(customer, output_at(customer, slot));
	float sum;

	for (uint32_t row = 0; row < count; row++)
		for (uint32_t j = 0; j < n; j++) {
			sum = 0;
			for (uint32_t i = 0; i < 3; i++)
				sum += input(row, (j + i) % n) * factor(i, j);
			if (y[row * n + j] != sum)
				fail_msg("%u rows: row %u, column %u is %g, not %g", count, row, j,
					 (double)y[row * n + j], (double)sum);
		}
}

struct rbk_cqe customer_take(struct customer *customer)
{
	const struct rbk_cqe *cqe;
	struct rbk_cqe copy;
	uint64_t slot;

	assert_int_equal(rbk_wait_cqe_timeout(customer->ring, &cqe, 120000000000), 0);
	copy = *cqe;
	rbk_cqe_seen(customer->ring, cqe);
	slot = rbk_cqe_get_data64(&copy);
	assert_true(slot < customer->options.n_entries);
	assert_true(copy.reason < RBK_REASON_COUNT);
	customer->n_done++;
	customer->exec_ns += copy.exec_ns;
	customer->reasons[copy.reason]++;
	if (copy.res == 0) {
		if ((!customer->options.is_careless || customer->n_done % 64 == 0) &&
		    (!customer->options.has_test_device || copy.device == RBK_DEVICE_CPU))
			check(customer, (uint32_t)slot);
		customer->n_right++;
	} else {
		customer->n_errors++;
	}
	customer->free_slots[customer->n_free++] = (uint32_t)slot;
	return copy;
}

bool customer_has(struct customer *customer)
{
	const struct rbk_cqe *cqe;

	return rbk_peek_cqe(customer->ring, &cqe) == 0;
}

uint32_t customer_in_flight(const struct customer *customer)
{
	return customer->options.n_entries - customer->n_free;
}

struct rbk_cqe customer_run(struct customer *customer, uint32_t count, unsigned int strategy)
{
	struct rbk_cqe cqe;

	customer_put(customer, count, strategy);
	cqe = customer_take(customer);
	assert_int_equal(cqe.res, 0);
	return cqe;
}

void customer_drain(struct customer *customer)
{
	while (customer_in_flight(customer) > 0)
		customer_take(customer);
}

bool customer_feed(struct customer *customer, uint32_t n, uint32_t count, unsigned int strategy)
{
	bool had_work = rbk_cq_ready(customer->ring) < customer_in_flight(customer);

	while (customer_has(customer))
		assert_int_equal(customer_take(customer).res, 0);
	while (customer_in_flight(customer) < n)
		customer_put(customer, count, strategy);
	return had_work;
}

/* ---- Statistics --------------------------------------------------------------------------- */

struct rbk_stats_tenant customer_totals(const struct customer *customer)
{
	struct rbk_stats_tenant totals;

	assert_true(harness_stats_copy(&customer->stats, RBK_STATS_SECTION_TENANTS, 0, &totals,
				       sizeof(totals)));
	return totals;
}

void customer_plan_stats(const struct customer *customer, struct rbk_stats_plan *ret,
			 struct rbk_stats_plan_device *ret_devices, unsigned int n_devices)
{
	uint64_t words[(sizeof(struct rbk_stats_plan) +
			RBK_MAX_DEVICES * sizeof(struct rbk_stats_plan_device)) /
		       sizeof(uint64_t)];
	const struct rbk_stats_view *view = &customer->stats;
	struct rbk_stats_plan *plan = (struct rbk_stats_plan *)words;
	size_t bytes = sizeof(*plan) + view->n_devices * sizeof(struct rbk_stats_plan_device);

	assert_true(n_devices <= view->n_devices);
	for (uint32_t i = 0; i < rbk_stats_count(view, RBK_STATS_SECTION_PLANS); i++) {
		assert_true(harness_stats_copy(view, RBK_STATS_SECTION_PLANS, i, words, bytes));
		if (plan->state != RBK_STATS_PLAN_LIVE ||
		    plan->plan_id != rbk_plan_id(customer->plan))
			continue;
		memcpy(ret, plan, sizeof(*ret));
		memcpy(ret_devices, plan->devices, n_devices * sizeof(*ret_devices));
		return;
	}
	fail_msg("the plan is not in the statistics");
}

bool customer_next_decision(struct customer *customer, struct rbk_stats_decision *ret)
{
	const uint32_t n = rbk_stats_count(&customer->stats, RBK_STATS_SECTION_DECISIONS);
	const struct rbk_stats_tenant totals = customer_totals(customer);

	if (customer->next_record >= totals.log_head)
		return false;
	/* Tests read before records are overwritten. */
	assert_true(totals.log_head - customer->next_record <= n);
	memcpy(ret,
	       rbk_stats_record(&customer->stats, RBK_STATS_SECTION_DECISIONS,
				(uint32_t)(customer->next_record % n)),
	       sizeof(*ret));
	assert_int_equal(ret->sequence, customer->next_record + 1);
	customer->next_record++;
	return true;
}

void broker_open_to_all(const struct broker *broker)
{
	assert_int_equal(chmod(broker->dir, 0755), 0);
	assert_int_equal(chmod(broker->socket_path, 0777), 0);
}

/* ---- Devices that fail -------------------------------------------------------------------- */

#ifdef FAILING_LAYER_PATH

static char layer_dir[] = "/tmp/rbk-layer-XXXXXX";

static void layer_file(const char *name, char ret[64])
{
	snprintf(ret, 64, "%s/%s", layer_dir, name);
}

struct failing_layer *failing_layer_begin(void)
{
	struct failing_layer *layer;
	char path[64];
	FILE *file;
	int fd;

	strcpy(layer_dir + strlen(layer_dir) - 6, "XXXXXX");
	assert_non_null(mkdtemp(layer_dir));
	layer_file("shared", path);
	fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, sizeof(*layer)), 0);
	layer = mmap(NULL, sizeof(*layer), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_ptr_not_equal(layer, MAP_FAILED);
	close(fd);
	setenv(FAILING_LAYER_ENV, path, 1);

	layer_file("layer.json", path);
	file = fopen(path, "we");
	assert_non_null(file);
	fprintf(file,
		"{\"file_format_version\": \"1.1.0\", \"layer\": {\"name\": \"%s\", "
		"\"type\": \"GLOBAL\", \"library_path\": \"%s\", \"api_version\": \"1.3.0\", "
		"\"implementation_version\": \"1\", \"description\": \"fails on request\"}}\n",
		FAILING_LAYER_NAME, FAILING_LAYER_PATH);
	assert_int_equal(fclose(file), 0);
	setenv("VK_LAYER_PATH", layer_dir, 1);
	setenv("VK_INSTANCE_LAYERS", FAILING_LAYER_NAME, 1);
	return layer;
}

void failing_layer_end(struct failing_layer *layer)
{
	char path[64];

	munmap(layer, sizeof(*layer));
	unsetenv(FAILING_LAYER_ENV);
	unsetenv("VK_LAYER_PATH");
	unsetenv("VK_INSTANCE_LAYERS");
	layer_file("shared", path);
	unlink(path);
	layer_file("layer.json", path);
	unlink(path);
	rmdir(layer_dir);
}

#else

struct failing_layer *failing_layer_begin(void)
{
	return NULL;
}

void failing_layer_end(struct failing_layer *layer)
{
}

#endif

bool broker_start_for_all(struct broker *broker, const char *const *args, const char *policy)
{
	if (geteuid() != 0) {
		print_message("needs root to become other users\n");
		return false;
	}
	broker_start(broker, &(struct broker_options){
				     .args = args, .is_undisturbed = true, .policy = policy});
	broker_open_to_all(broker);
	return true;
}

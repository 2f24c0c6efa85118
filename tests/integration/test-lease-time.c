/* SPDX-License-Identifier: MIT */
/*
 * Time of a card that leased programs use: it is a part of their tenant's share
 *
 *	amdgpu-sim run --card polaris10 -- test-lease-time AMDGPU_SIM
 *
 * Each submission takes 2 ms of the card, which contexts share fairly: the broker's, for the plans
 * of two tenants, and that of this process, which is a leased program of the first one.
 */
#include <amdgpu.h>
#include <amdgpu_drm.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <ringbroker/lease.h>

#include "integration/placement.h"
#include "support/test.h"

enum { FIRST = 40021, SECOND = 40022, ENTRIES = 64, DEPTH = 64 };

#define JOB_NS 2000000ull

static const uint64_t ms = 1000000;
static const char *sim_path;
static struct broker broker;

/* The leased program: keeps the card busy in a thread of its own while @is_busy. */
struct program {
	amdgpu_device_handle card;
	amdgpu_context_handle context;
	amdgpu_bo_handle buffer;
	pthread_t thread;
	atomic_bool is_busy, must_end;
	_Atomic uint64_t n_done;
};

static uint64_t submit(struct program *program)
{
	struct amdgpu_cs_ib_info ib = {.ib_mc_address = 0x100000, .size = 16};
	amdgpu_bo_handle buffer = program->buffer;
	struct amdgpu_cs_request request = {
		.ip_type = AMDGPU_HW_IP_COMPUTE, .number_of_ibs = 1, .ibs = &ib};

	assert_int_equal(amdgpu_bo_list_create(program->card, 1, &buffer, NULL, &request.resources),
			 0);
	assert_int_equal(amdgpu_cs_submit(program->context, 0, &request, 1), 0);
	amdgpu_bo_list_destroy(request.resources);
	return request.seq_no;
}

static void await(struct program *program, uint64_t seq)
{
	struct amdgpu_cs_fence fence = {
		.context = program->context, .ip_type = AMDGPU_HW_IP_COMPUTE, .fence = seq};
	uint32_t is_expired;

	assert_int_equal(
		amdgpu_cs_query_fence_status(&fence, AMDGPU_TIMEOUT_INFINITE, 0, &is_expired), 0);
	program->n_done++;
}

static void *program_main(void *data)
{
	struct program *program = data;
	uint64_t seqs[DEPTH];

	while (!atomic_load(&program->must_end)) {
		if (!atomic_load(&program->is_busy)) {
			usleep(1000);
			continue;
		}
		for (unsigned int i = 0; i < DEPTH; i++)
			seqs[i] = submit(program);
		for (unsigned int i = 0; atomic_load(&program->is_busy); i = (i + 1) % DEPTH) {
			await(program, seqs[i]);
			seqs[i] = submit(program);
		}
		for (unsigned int i = 0; i < DEPTH; i++)
			await(program, seqs[i]);
	}
	return NULL;
}

static void program_begin(struct program *program)
{
	struct amdgpu_bo_alloc_request request = {
		.alloc_size = 16 << 20,
		.phys_alignment = 4096,
		.preferred_heap = AMDGPU_GEM_DOMAIN_VRAM,
	};
	uint32_t major_version, minor_version;
	int fd = open("/dev/dri/renderD128", O_RDWR | O_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(
		amdgpu_device_initialize(fd, &major_version, &minor_version, &program->card), 0);
	close(fd);
	assert_int_equal(amdgpu_bo_alloc(program->card, &request, &program->buffer), 0);
	assert_int_equal(amdgpu_cs_ctx_create(program->card, &program->context), 0);
	assert_int_equal(pthread_create(&program->thread, NULL, program_main, program), 0);
}

static void program_end(struct program *program)
{
	atomic_store(&program->is_busy, false);
	atomic_store(&program->must_end, true);
	pthread_join(program->thread, NULL);
	amdgpu_cs_ctx_free(program->context);
	amdgpu_bo_free(program->buffer);
	amdgpu_device_deinitialize(program->card);
}

/*
 * Keep both customers' rings full. All tasks are alike.
 * Return: the first customer's part of them.
 */
static double part_of_first(struct customer *customers, uint64_t ns)
{
	const uint64_t end_ns = harness_now_ns() + ns;

	customers[0].n_done = customers[1].n_done = 0;
	while (harness_now_ns() < end_ns) {
		for (unsigned int i = 0; i < 2; i++)
			customer_feed(&customers[i], ENTRIES, 256, RBK_STRATEGY_ONLY_GPU);
		usleep(500);
	}
	assert_true(customers[0].n_done + customers[1].n_done > 0);
	return (double)customers[0].n_done / (double)(customers[0].n_done + customers[1].n_done);
}

static void sim_set(const char *assignments)
{
	char command[512];

	snprintf(command, sizeof(command), "%s set %s", sim_path, assignments);
	assert_int_equal(system(command), 0);
}

TEST(test_share__includes_leased_programs)
{
	static const char policy[] = "[tenant first]\nmatch-uid = 40021\nvram-max = 1GiB\n"
				     "[tenant second]\nmatch-uid = 40022\nvram-max = 1GiB\n";
	const struct rbk_lease_options lease_options = {.device = RBK_DEVICE_GPU,
							.max_bytes = 64 << 20};
	const char *const args[] = {"--gpu=auto", "--sandbox=off", "--workers=1", NULL};
	static struct program program;
	struct customer customers[2];
	struct rbk_error error = {""};
	struct rbk_lease *lease;
	double part, program_part;
	uint64_t n_before, begin_ns;

	if (!broker_start_for_all(&broker, args, policy))
		skip();
	for (unsigned int i = 0; i < 2; i++)
		customer_init(&customers[i], &broker,
			      &(struct customer_options){.uid = i == 0 ? FIRST : SECOND,
							 .n_entries = ENTRIES,
							 .has_test_device = true,
							 /* No client reads statistics. */
							 .has_no_stats = true});
	if (rbk_lease_open(customers[0].rbk, &lease_options, &lease, &error))
		fail_msg("%s", error.text);
	sim_set("execution=timed policy=fair job-ns=2000000");
	program_begin(&program);

	part_of_first(customers, harness_slow_ns(1000 * ms));
	part = part_of_first(customers, harness_slow_ns(1500 * ms));
	if (part < 0.4 || part > 0.6)
		fail_msg("the first of two equal tenants has %.3f of the card", part);

	/* Half of the card for its program: the other tenant has what is left. */
	atomic_store(&program.is_busy, true);
	part_of_first(customers, harness_slow_ns(3000 * ms));
	n_before = program.n_done;
	begin_ns = harness_now_ns();
	part = part_of_first(customers, harness_slow_ns(3000 * ms));
	program_part = (double)((program.n_done - n_before) * JOB_NS) /
		       (double)(harness_now_ns() - begin_ns);
	print_message("%.3f of the card for the leased program; %.3f of the plans' tasks\n",
		      program_part, part);
	if (part > 0.2 && program_part >= 0.4)
		fail_msg("the tenant of the leased program has %.3f of the plans' time", part);

	/* The program is idle again: its tenant waits a second more at most. */
	atomic_store(&program.is_busy, false);
	part_of_first(customers, harness_slow_ns(2500 * ms));
	part = part_of_first(customers, harness_slow_ns(1500 * ms));
	if (part < 0.4 || part > 0.6)
		fail_msg("afterwards it has %.3f of the card", part);
	if (program_part < 0.4)
		print_message("the machine was too slow to keep the card busy\n");

	program_end(&program);
	sim_set("execution=instant");
	rbk_lease_close(lease);
	for (unsigned int i = 0; i < 2; i++) {
		customer_drain(&customers[i]);
		assert_int_equal(customers[i].n_errors, 0);
		customer_deinit(&customers[i]);
	}
	broker_stop(&broker);
}

/* A program that hangs the card costs other programs their memory: the log names it. */
TEST(test_reset__names_the_program)
{
	const struct rbk_lease_options options = {.device = RBK_DEVICE_GPU, .max_bytes = 64 << 20};
	static struct program program;
	struct rbk_stats_lease record;
	struct rbk_stats_view view;
	struct rbk_lease *lease;
	char text[128];
	struct rbk *rbk;

	broker_start(&broker,
		     &(struct broker_options){
			     .is_undisturbed = true,
			     .args = (const char *const[]){"--gpu=auto", "--sandbox=off", NULL}});
	rbk = broker_connect(&broker, "client");
	program_begin(&program);
	/* Wait until the broker knows the process. */
	assert_int_equal(rbk_lease_open(rbk, &options, &lease, NULL), 0);
	assert_int_equal(rbk_stats_map(rbk, RBK_STATS_OWN, 0, &view, NULL), 0);
	do
		harness_sleep_ms(20);
	while (!harness_stats_copy(&view, RBK_STATS_SECTION_LEASES, 0, &record, sizeof(record)) ||
	       record.number == 0 || record.seen_bytes == RBK_STATS_ABSENT ||
	       record.seen_bytes == 0);
	rbk_stats_unmap(&view);
	sim_set("execution=timed policy=fifo job-ns=100000000000 timeout-ns=4000000000");
	await(&program, submit(&program));
	snprintf(text, sizeof(text),
		 "was reset; of the processes that are left, %d (test-lease-time) of uid %u used "
		 "most",
		 (int)getpid(), (unsigned int)geteuid());
	broker_wait_log(&broker, text);
	program_end(&program);
	sim_set("execution=instant job-ns=1000000 timeout-ns=0");
	rbk_lease_close(lease);
	rbk_disconnect(rbk);
	broker_stop(&broker);
}

int main(int argc, char **argv)
{
	if (argc != 2)
		return 2;
	sim_path = argv[1];
	harness_limit_seconds(60);
	return test_run(NULL, NULL);
}

/* SPDX-License-Identifier: MIT */
/* The CPU executor: how steps are cut and shared, by the time that a plan's tasks took */
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

#include "cpu/internal.h"
#include "support/test.h"
#include "unit/cpu-rig.h"
#include "util/clock.h"

/* An executor without threads, and a worker of it, or its reactor */
struct bare {
	struct cpu_executor cpu;
	struct cpu_worker *workers;
	struct cpu_worker *reactor;
};

static void bare_init(struct bare *bare, unsigned int n_workers, unsigned int n_helpers)
{
	memset(bare, 0, sizeof(*bare));
	bare->workers =
		aligned_alloc(alignof(struct cpu_worker), (n_workers + 1) * sizeof(*bare->workers));
	assert_non_null(bare->workers);
	memset(bare->workers, 0, (n_workers + 1) * sizeof(*bare->workers));
	for (unsigned int i = 0; i <= n_workers; i++) {
		bare->workers[i].cpu = &bare->cpu;
		bare->workers[i].index = i;
	}
	bare->cpu.workers = bare->workers;
	bare->cpu.n_workers = n_workers;
	bare->cpu.n_helpers = n_helpers;
	bare->cpu.spin_ticks = clock_ns_to_ticks(1000000000);
	atomic_init(&bare->cpu.n_active, n_workers);
	bare->reactor = &bare->workers[n_workers];
}

static void bare_deinit(struct bare *bare)
{
	free(bare->workers);
}

/* The estimate is replaced by the first time, and then follows the mean of the times. */
TEST(test_share__learns_pace)
{
	struct cpu_plan plan = {.cost_fixed_ns = 10000, .cost_row_ns = 1000};
	const uint64_t estimate_ticks = clock_ns_to_ticks(100000); /* of 90 rows */

	assert_float_equal(cpu_plan_pace(&plan), 1, 0);
	cpu_plan_learn(&plan, 90, estimate_ticks / 5);
	assert_float_equal(cpu_plan_pace(&plan), 0.2, 0.001);
	/* A task that lost its processor counts for little. */
	cpu_plan_learn(&plan, 90, 1000 * estimate_ticks);
	assert_in_range((int)(1000 * cpu_plan_pace(&plan)), 201, 230);
	for (unsigned int i = 0; i < 100; i++)
		cpu_plan_learn(&plan, 0, estimate_ticks / 20); /* 10 us estimated */
	assert_float_equal(cpu_plan_pace(&plan), 0.5, 0.01);
	for (unsigned int i = 0; i < 1000; i++)
		cpu_plan_learn(&plan, 0, 0);
	assert_in_range((int)(1000 * cpu_plan_pace(&plan)), 1, 40);
	for (unsigned int i = 0; i < 1000; i++)
		cpu_plan_learn(&plan, 0, UINT64_MAX / 2);
	assert_in_range((int)cpu_plan_pace(&plan), 16, 32);
}

/* Nothing is known of a plan whose estimate is zero, such as one of no rows. */
TEST(test_share__learns_nothing_without_estimate)
{
	struct cpu_plan plan = {.cost_row_ns = 1000};

	cpu_plan_learn(&plan, 0, 1000);
	assert_float_equal(cpu_plan_pace(&plan), 1, 0);
}

/* Tasks teach their plan: the estimate of a product knows nothing of this processor. */
TEST(test_share__tasks_teach)
{
	struct exec_arena arena;
	struct cpu_plan *compiled;
	struct cpu_rig rig;
	struct plan *plan;
	struct cpu_job job;
	double estimate_ns, pace;

	reference_arena_init(&arena, 390 * 500 * sizeof(float), 3);
	cpu_rig_init(&rig, &(struct cpu_options){.n_workers = 1});
	plan = cpu_rig_long_plan(&arena);
	cpu_rig_prepare(&rig, plan);
	compiled = plan->exec[RBK_DEVICE_CPU];
	cpu_job_init(&job, plan, 100, 1);
	cpu_rig_run(&rig, &job);
	estimate_ns = compiled->cost_fixed_ns + 100 * compiled->cost_row_ns;
	pace = (double)clock_ticks_to_ns(job.task.busy_ticks) / estimate_ns;
	/* A busy machine may take very long. */
	assert_float_equal(cpu_plan_pace(compiled), pace < 32 ? pace : 32, 0.01);
	cpu_job_deinit(&job);
	cpu_rig_release(&rig, plan);
	cpu_rig_deinit(&rig);
	reference_arena_deinit(&arena);
}

/*
 * A short step is computed in one call; the reactor looks between short pieces. Where no helper is
 * expected, pieces are as long as a step in one call.
 */
TEST(test_share__cuts_long_steps)
{
	const struct cpu_step blind = {0}, looking = {.looks = true};
	static const struct {
		unsigned int n_workers, n_helpers, n_idle;
		bool is_reactor, looks;
		double whole_ns;        /* longest step that is not cut */
		size_t n_least, n_most; /* chunks of a step of 0.4 ms */
	} cases[] = {
		{1, 0, 0, false, false, 60000, 7, 7},  {1, 0, 0, false, true, 100000, 4, 4},
		{4, 0, 1, false, true, 12000, 20, 32}, {4, 0, 3, false, false, 12000, 20, 32},
		{4, 0, 0, false, false, 60000, 7, 7},  {4, 0, 0, false, true, 100000, 4, 4},
		{4, 0, 0, true, false, 5000, 80, 80},  {4, 0, 0, true, true, 100000, 4, 4},
		{4, 3, 0, true, true, 12000, 20, 32},  {4, 3, 0, true, false, 5000, 80, 80},
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		const struct cpu_step *step = cases[i].looks ? &looking : &blind;
		const struct cpu_worker *worker;
		struct bare bare;

		bare_init(&bare, cases[i].n_workers, cases[i].n_helpers);
		atomic_store(&bare.cpu.n_looking, cases[i].n_idle);
		worker = cases[i].is_reactor ? bare.reactor : bare.workers;
		assert_true(cpu_step_is_whole(worker, step, cases[i].whole_ns));
		assert_false(cpu_step_is_whole(worker, step, cases[i].whole_ns + 1));
		/* No more chunks than units; not many more than threads, unless they are long. */
		assert_int_equal(cpu_step_chunks(worker, step, 1e9, 3), 3);
		assert_in_range(cpu_step_chunks(worker, step, 400000, 1000), cases[i].n_least,
				cases[i].n_most);
		assert_in_range(cpu_step_chunks(worker, step, 1e9, 1 << 20),
				cases[i].n_least < 20 ? 10000 : 50000,
				cases[i].n_least < 20 ? 17000 : 200000);
		bare_deinit(&bare);
	}
}

/* Any worker without a task may come, also one that sleeps. */
TEST(test_share__expects_sleepers)
{
	const struct cpu_step step = {.looks = true};
	struct bare bare;

	bare_init(&bare, 4, 0);
	assert_true(cpu_step_is_whole(bare.workers, &step, 100000));
	atomic_store(&bare.cpu.n_sleeping, 1);
	assert_false(cpu_step_is_whole(bare.workers, &step, 100000));
	bare_deinit(&bare);
}

/* Each thread gets a piece that is worth fetching. */
TEST(test_share__helpers_by_time)
{
	static const struct {
		double ns;
		size_t n_chunks;
		unsigned int n_helpers, n_wanted;
	} cases[] = {
		{11999, 8, 15, 0},  {12000, 8, 15, 1},  {24000, 8, 15, 2},
		{80000, 20, 15, 9}, {1e6, 100, 15, 15}, {1e6, 4, 15, 3},
		{1e6, 1, 15, 0},    {1e6, 100, 2, 2},   {1e6, 100, 0, 0},
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct bare bare;

		bare_init(&bare, 16, cases[i].n_helpers);
		assert_int_equal(cpu_step_helpers(bare.reactor, cases[i].ns, cases[i].n_chunks),
				 cases[i].n_wanted);
		bare_deinit(&bare);
	}
}

/* Sleeping workers are woken for long steps, or for short ones without a pause between them. */
TEST(test_share__wakes_by_time)
{
	struct cpu_worker *leader;
	struct bare bare;

	bare_init(&bare, 16, 15);
	leader = bare.reactor;
	atomic_store(&bare.cpu.n_sleeping, 16);
	assert_int_equal(cpu_step_wakes(leader, 99999, 11), 0);
	leader->shared_ticks = 0;
	assert_int_equal(cpu_step_wakes(leader, 100000, 11), 2);
	leader->shared_ticks = 0;
	assert_int_equal(cpu_step_wakes(leader, 1e6, 11), 11);
	/* Workers that are awake come anyway. */
	atomic_store(&bare.cpu.n_looking, 4);
	leader->shared_ticks = 0;
	assert_int_equal(cpu_step_wakes(leader, 1e6, 11), 7);
	atomic_store(&bare.cpu.n_looking, 11);
	leader->shared_ticks = 0;
	assert_int_equal(cpu_step_wakes(leader, 1e6, 11), 0);
	atomic_store(&bare.cpu.n_looking, 0);
	/* Step after step */
	leader->shared_ticks = 0;
	for (unsigned int i = 0; i < 4; i++) {
		assert_int_equal(cpu_step_wakes(leader, 24000, 2), 0);
		leader->shared_ticks = clock_ticks();
	}
	assert_int_equal(cpu_step_wakes(leader, 24000, 2), 2);
	/* After a pause they would be asleep again. */
	leader->shared_ticks = 0;
	assert_int_equal(cpu_step_wakes(leader, 24000, 2), 0);
	atomic_store(&bare.cpu.n_sleeping, 0);
	leader->shared_ticks = clock_ticks();
	assert_int_equal(cpu_step_wakes(leader, 1e6, 11), 0);
	bare_deinit(&bare);
}

/* A worker for which work comes now and then soon spins no more, until work comes soon again. */
TEST(test_share__spins_for_frequent_work)
{
	const struct cpu_executor cpu = {.spin_ticks = 1000};
	uint64_t spin_ticks = 1000;

	assert_int_equal(cpu_worker_next_spin(&cpu, spin_ticks, 3999), 1000);
	for (unsigned int i = 0; i < 10; i++)
		spin_ticks = cpu_worker_next_spin(&cpu, spin_ticks, 4000);
	assert_int_equal(spin_ticks, 0);
	assert_int_equal(cpu_worker_next_spin(&cpu, spin_ticks, 3999), 1000);
}

/* No more workers help at a time than the step is worth: others neither join nor stay awake. */
TEST(test_share__full_team_has_no_work)
{
	struct cpu_team *team;
	struct bare bare;

	bare_init(&bare, 8, 7);
	atomic_store(&bare.cpu.kept_off, 7);
	team = &bare.reactor->layers[CPU_LAYER_BASE].team;
	atomic_store(&bare.cpu.n_teams, 1);
	atomic_store(&team->max_helpers, 2);
	atomic_store(&team->state, CPU_TEAM_OPEN | 1);
	assert_true(cpu_worker_sees_work(&bare.workers[0]));
	assert_false(cpu_worker_sees_work(&bare.workers[7]));
	atomic_store(&team->state, CPU_TEAM_OPEN | 2);
	assert_false(cpu_worker_sees_work(&bare.workers[0]));
	assert_false(cpu_worker_work(&bare.workers[0]));
	assert_int_equal(atomic_load(&team->state), CPU_TEAM_OPEN | 2);
	bare_deinit(&bare);
}

static unsigned int count_sleeping(const struct bare *bare)
{
	unsigned int n = 0;

	for (unsigned int i = 0; i < bare->cpu.n_workers; i++)
		n += atomic_load(&bare->workers[i].asleep) == 1;
	return n;
}

/* Each helper that comes wakes two more, as long as the leader wants some. */
TEST(test_share__helpers_wake_helpers)
{
	struct exec_task task = {.state = EXEC_RUNNING};
	struct cpu_team *team;
	struct bare bare;

	bare_init(&bare, 8, 7);
	atomic_store(&bare.cpu.kept_off, 7);
	team = &bare.reactor->layers[CPU_LAYER_BASE].team;
	team->task = &task;
	atomic_store(&bare.cpu.n_teams, 1);
	atomic_store(&team->max_helpers, 7);
	atomic_store(&team->state, CPU_TEAM_OPEN);
	atomic_store(&team->n_wakes, 3);
	for (unsigned int i = 3; i < 8; i++)
		atomic_store(&bare.workers[i].asleep, 1);
	assert_true(cpu_worker_work(&bare.workers[0]));
	assert_int_equal(count_sleeping(&bare), 3);
	assert_true(cpu_worker_work(&bare.workers[1]));
	assert_int_equal(count_sleeping(&bare), 2);
	assert_true(cpu_worker_work(&bare.workers[2]));
	assert_int_equal(count_sleeping(&bare), 2);
	assert_int_equal(atomic_load(&bare.workers[7].asleep), 1);
	bare_deinit(&bare);
}

/* Spins of cpu_team_wait() before it sleeps, and sleeps that the test waits for */
enum { SPINS = 500, SLEEPS = 20 };

struct lost_helper {
	struct cpu_team *team;
	_Atomic unsigned int n_looks; /* of the leader, for other work */
};

static void *leave_late(void *data)
{
	struct lost_helper *helper = data;

	while (atomic_load(&helper->n_looks) < SPINS + SLEEPS)
		usleep(1000);
	cpu_team_leave(helper->team);
	return NULL;
}

/* Let @leader wait for a helper that has lost its processor for SLEEPS sleeps. */
static void wait_for_lost_helper(struct cpu_worker *leader)
{
	struct lost_helper helper = {.team = &leader->layers[CPU_LAYER_BASE].team};
	uint64_t begin_ns = 0, begin_used_ns = 0;
	pthread_t thread;

	atomic_store(&helper.team->state, 1);
	assert_int_equal(pthread_create(&thread, NULL, leave_late, &helper), 0);
	while (cpu_team_has_helpers(helper.team)) {
		const unsigned int n_looks = atomic_fetch_add(&helper.n_looks, 1);

		if (n_looks == SPINS) {
			begin_ns = clock_now_ns();
			begin_used_ns = clock_read_ns(CLOCK_THREAD_CPUTIME_ID);
		}
		cpu_team_wait(leader, helper.team, n_looks);
	}
	assert_true(2 * (clock_read_ns(CLOCK_THREAD_CPUTIME_ID) - begin_used_ns) <
		    clock_now_ns() - begin_ns);
	pthread_join(thread, NULL);
	assert_int_equal(atomic_load(&helper.team->state) & CPU_TEAM_HELPERS, 0);
}

/* A leader whose helper has lost its processor sleeps, and looks for other work now and then. */
TEST(test_share__leader_sleeps)
{
	struct bare bare;

	bare_init(&bare, 2, 1);
	wait_for_lost_helper(&bare.workers[0]);
	wait_for_lost_helper(bare.reactor);
	bare_deinit(&bare);
}

struct wakes {
	const struct cpu_team *team;
	int32_t most; /* largest number that the leader left to helpers */
};

static void look(void *context)
{
	struct wakes *wakes = context;
	const int32_t n = atomic_load(&wakes->team->n_wakes);

	wakes->most = n > wakes->most ? n : wakes->most;
}

/* The leader wakes two itself, and leaves the others to those who come. */
TEST(test_share__leader_wakes_few)
{
	enum { N_WORKERS = 8, COUNT = 100 };
	const uint64_t start_ns = clock_now_ns();
	struct wakes wakes = {0};
	struct cpu_plan *compiled;
	struct cpu_executor *cpu;
	struct exec_arena arena;
	struct cpu_rig rig;
	struct plan *plan;
	struct cpu_job job;

	reference_arena_init(&arena, 390 * 500 * sizeof(float), 3);
	cpu_rig_init(&rig,
		     &(struct cpu_options){.n_workers = N_WORKERS, .spin_ns = 1, .no_pin = true});
	cpu = cpu_executor_from(rig.executor);
	wakes.team = &cpu_reactor_worker(cpu)->layers[CPU_LAYER_BASE].team;
	plan = cpu_rig_long_plan(&arena);
	cpu_rig_prepare(&rig, plan);
	compiled = plan->exec[RBK_DEVICE_CPU];
	cpu_job_init(&job, plan, COUNT, 1);
	do {
		/* On a busy machine, helpers may have come before the leader looks. */
		assert_true(clock_now_ns() - start_ns < 60000000000);
		while (atomic_load(&cpu->n_sleeping) < N_WORKERS)
			sched_yield();
		/* The steps are long enough for all. */
		atomic_store(&compiled->pace, 30);
		atomic_store(&job.task.state, EXEC_QUEUED);
		rig.executor->ops->run_here(rig.executor, &job.task, N_WORKERS - 1, look, &wakes);
		assert_int_equal(job.task.res, 0);
	} while (wakes.most == 0);
	assert_in_range(wakes.most, 1, N_WORKERS - 1 - 2);
	cpu_job_deinit(&job);
	cpu_rig_release(&rig, plan);
	cpu_rig_deinit(&rig);
	reference_arena_deinit(&arena);
}

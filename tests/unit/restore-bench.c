/* SPDX-License-Identifier: MIT */
/* Two brokers; see restore-bench.h. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shm/ring.h"
#include "support/scaled.h"
#include "support/test.h"
#include "unit/restore-bench.h"

#ifdef __SANITIZE_THREAD__
enum { IS_THREAD_SANITIZER = true };
#else
enum { IS_THREAD_SANITIZER = false };
#endif

void remove_ring(struct bench *bench)
{
	uint32_t id = bench->ring.ring->id;

	rig_ring_deinit(&bench->ring);
	assert_int_equal(session_ring_remove(bench->rig.session, 1, id), 0);
	assert_int_equal(rig_answer(&bench->rig, RBK_WIRE_RING_REMOVE, NULL, 0), 0);
}

void heir_begin(struct bench *bench, uint32_t n_devices)
{
	bench_begin(bench, n_devices, N_ENTRIES);
	remove_ring(bench);
}

void heir_end(struct bench *bench)
{
	/* bench_end() releases a ring. */
	rig_ring_new(&bench->rig, N_ENTRIES, &bench->ring);
	bench_end(bench);
}

void brokers_begin(struct brokers *brokers, uint32_t n_devices)
{
	bench_begin(&brokers->first, n_devices, N_ENTRIES);
	heir_begin(&brokers->second, n_devices);
}

void brokers_end(struct brokers *brokers)
{
	if (brokers->second.rig.session->n_added_rings > 0)
		rig_ring_deinit(&brokers->second.ring);
	heir_end(&brokers->second);
	bench_end(&brokers->first);
}

void bequeath(const struct bench *dying, struct bench *heir)
{
	struct rig_areas areas;

	rig_areas_copy(&dying->ring, &areas);
	rig_ring_restore(&heir->rig, &areas, N_ENTRIES, &heir->ring);
	rig_areas_deinit(&areas);
}

void die(struct brokers *brokers)
{
	bequeath(&brokers->first, &brokers->second);
	rig_work(&brokers->second.rig);
}

void run_all(struct bench *bench)
{
	do {
		rig_work(&bench->rig);
		if (fake_begin(bench->cpu, FAILING))
			fake_finish(bench->cpu, FAILING, -EIO);
		fake_finish_all(bench->cpu, 0);
	} while (rig_work(&bench->rig) > 0 || bench->cpu->n_tasks > 0);
}

static void run_script(struct bench *bench, const struct script *script)
{
	if (script->run)
		script->run(bench);
	else
		run_all(bench);
}

/* Restore a ring from @areas, run it to its end, and expect each entry's completion once. */
static void check_successor(struct bench *bench, const struct script *script,
			    struct rig_areas *areas, unsigned int n_stores)
{
	unsigned int n_times[MAX_ENTRIES + 1] = {0};
	struct rbk_cqe cqe;

	rig_ring_restore(&bench->rig, areas, N_ENTRIES, &bench->ring);
	run_script(bench, script);
	if (script->put_rest)
		script->put_rest(bench);
	run_script(bench, script);
	while (rig_take(&bench->ring, &cqe)) {
		if (cqe.user_data < 1 || cqe.user_data > script->n_entries ||
		    cqe.res != script->res[cqe.user_data])
			fail_msg("after store %u entry %llu completed with %d", n_stores,
				 (unsigned long long)cqe.user_data, cqe.res);
		n_times[cqe.user_data]++;
	}
	for (unsigned int i = 1; i <= script->n_entries; i++)
		if (n_times[i] != 1)
			fail_msg("after store %u entry %u completed %u times", n_stores, i,
				 n_times[i]);
	if (script->check)
		script->check(bench->arena->exec.base, n_stores);
	remove_ring(bench);
}

/* The client may overwrite what is published as consumed, and consume what is published. */
void check_published(const struct rbk_cq_area *cq)
{
	struct rbk_commit commit;

	rbk_commit_load(cq, &commit);
	assert_true((uint32_t)commit.sq_head - cq->sq_head <= N_ENTRIES);
	assert_true((uint32_t)commit.cq_tail - cq->cq_tail <= N_ENTRIES);
}

/* Begin a process that runs the first broker when it is continued. */
static pid_t begin_process(struct bench *bench, const struct script *script)
{
	pid_t pid = fork();
	int status;

	assert_true(pid >= 0);
	if (pid == 0) {
		if (ptrace(PTRACE_TRACEME, 0, NULL, NULL))
			_exit(2);
		raise(SIGSTOP);
		run_script(bench, script);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (WIFEXITED(status))
		return -1;
	assert_true(WIFSTOPPED(status));
	return pid;
}

/* Memory that outlives a broker, as it was at its last store */
struct seen {
	const void *memory;
	size_t bytes;
	void *last;
};

static void see(struct seen *seen, const void *memory, size_t bytes)
{
	*seen = (struct seen){memory, bytes, malloc(bytes + 1)};
	assert_non_null(seen->last);
	memcpy(seen->last, memory, bytes);
}

/* Return true if the memory has changed since the last call. */
static bool has_changed(struct seen *seen)
{
	if (memcmp(seen->last, seen->memory, seen->bytes) == 0)
		return false;
	memcpy(seen->last, seen->memory, seen->bytes);
	return true;
}

/* The stepped broker dies now, and @heir completes all that it left. */
static void check_death(const struct script *script, const struct bench *dying, struct bench *heir,
			unsigned int n_stores)
{
	struct rig_areas areas;

	check_published(dying->ring.cq);
	memcpy(heir->arena->exec.base, dying->arena->exec.base, script->arena_bytes);
	rig_areas_copy(&dying->ring, &areas);
	check_successor(heir, script, &areas, n_stores);
	rig_areas_deinit(&areas);
}

unsigned int step(const struct script *script, struct bench *dying, struct bench *heir)
{
	/*
	 * A sanitizer's code makes steps many: scripts without is_for_sanitizers run to their end
	 * in one go. ThreadSanitizer finds nothing in a process that has one thread.
	 */
	const bool is_stepped = !test_is_scaled_down() || script->is_for_sanitizers;
	pid_t pid = IS_THREAD_SANITIZER ? -1 : begin_process(dying, script);
	struct seen cq, arena;
	unsigned int n_stores = 0;
	int status = 0;

	if (pid < 0)
		return 0;
	see(&cq, dying->ring.cq, dying->ring.cq_bytes);
	see(&arena, dying->arena->exec.base, script->arena_bytes);
	check_death(script, dying, heir, n_stores++);
	for (;;) {
		if (has_changed(&cq) || has_changed(&arena))
			check_death(script, dying, heir, n_stores++);
		assert_int_equal(
			ptrace(is_stepped ? PTRACE_SINGLESTEP : PTRACE_CONT, pid, NULL, NULL), 0);
		assert_int_equal(waitpid(pid, &status, 0), pid);
		if (WIFEXITED(status))
			break;
		/* A signal of another kind would be the broker's crash. */
		assert_true(WIFSTOPPED(status) && WSTOPSIG(status) == SIGTRAP);
	}
	assert_int_equal(WEXITSTATUS(status), 0);
	if (!is_stepped)
		check_death(script, dying, heir, n_stores++);
	free(cq.last);
	free(arena.last);
	return n_stores;
}

/* SPDX-License-Identifier: MIT */
/*
 * The life of a broker: start, errors at start, sleep and end, and what clients notice of its end
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "integration/harness.h"
#include "integration/plans.h"
#include "support/test.h"

/* A plan of a long product: [count,n] x [n,n]. */
struct work {
	struct rbk_arena *arena;
	struct rbk_plan *plan;
	uint64_t refs[3];
};

enum { WORK_N = 128, WORK_COUNT = 2048 };

static void work_make(struct work *work, struct rbk *rbk)
{
	assert_int_equal(plan_product(rbk, WORK_COUNT, WORK_N, WORK_N, NULL, &work->plan, NULL), 0);
	assert_int_equal(rbk_arena_new(rbk, 8 << 20, &work->arena, NULL), 0);
	work->refs[0] = rbk_arena_ref(work->arena, 0);
	work->refs[1] = rbk_arena_ref(work->arena, 2 << 20);
	work->refs[2] = rbk_arena_ref(work->arena, 4 << 20);
}

static void work_submit(const struct work *work, struct rbk_ring *ring, unsigned int n,
			unsigned int strategy)
{
	for (unsigned int i = 0; i < n; i++) {
		struct rbk_sqe *sqe = rbk_get_sqe(ring);

		assert_non_null(sqe);
		rbk_prep_run(sqe, rbk_plan_id(work->plan), WORK_COUNT, work->refs, 3);
		rbk_sqe_set_data64(sqe, i);
		rbk_sqe_set_strategy(sqe, strategy);
	}
	assert_int_equal(rbk_submit(ring), n);
}

static void work_free(struct work *work)
{
	rbk_plan_free(work->plan);
	rbk_arena_free(work->arena);
}

/* ---- Starting ---- */

TEST(test_start__logs_three_lines)
{
	BROKER(broker, NULL);
	assert_int_equal(broker_log_lines(&broker), 3);
	assert_true(broker_log_has(&broker, "device 0: "));
	assert_true(broker_log_has(&broker, "listening on "));
	assert_true(broker_log_has(&broker, broker.socket_path));
}

TEST(test_start__socket_is_private)
{
	struct broker broker;
	struct stat status;

	broker_start(&broker, NULL);
	assert_int_equal(stat(broker.socket_path, &status), 0);
	assert_int_equal(status.st_mode & 0777, 0600);
	broker_stop(&broker);
	broker_start(&broker, &(struct broker_options){.args = (const char *const[]){
							       "--socket-mode", "0660", NULL}});
	assert_int_equal(stat(broker.socket_path, &status), 0);
	assert_int_equal(status.st_mode & 0777, 0660);
	broker_stop(&broker);
}

/* Without a cache the broker starts, and its log line about missing features says so. */
TEST(test_start__no_cache)
{
	BROKER(broker, &(struct broker_options){
			       .args = (const char *const[]){"--cache", "/proc/nowhere", NULL}});
	assert_int_equal(broker_log_lines(&broker), 3);
	assert_true(broker_log_has(&broker, "no cache in /proc/nowhere"));
}

/* Return the time slice of a thread, in ns; 0 if the kernel has none. See sched_setattr(2). */
static uint64_t slice_of(pid_t thread)
{
	struct {
		uint32_t bytes, policy;
		uint64_t flags;
		int32_t nice;
		uint32_t priority;
		uint64_t slice_ns, deadline_ns, period_ns;
	} attr = {.bytes = sizeof(attr)};

	assert_int_equal(syscall(SYS_sched_getattr, thread, &attr, sizeof(attr), 0), 0);
	return attr.slice_ns;
}

TEST(test_start__only_reactor_has_short_slices)
{
	const uint64_t usual_ns = slice_of(0);
	struct dirent *entry;
	unsigned int n = 0;
	char path[64];
	DIR *folder;

	if (usual_ns == 0)
		skip();
	BROKER(broker, NULL);
	/* The broker accepts connections before it sets the slice. */
	for (unsigned int i = 0; i < 10000 && slice_of(broker.pid) == usual_ns; i++)
		usleep(1000);
	assert_int_equal(slice_of(broker.pid), 100000);
	snprintf(path, sizeof(path), "/proc/%d/task", (int)broker.pid);
	folder = opendir(path);
	assert_non_null(folder);
	while ((entry = readdir(folder))) {
		pid_t thread = (pid_t)atoi(entry->d_name);

		if (thread <= 0 || thread == broker.pid)
			continue;
		assert_int_equal(slice_of(thread), usual_ns);
		n++;
	}
	closedir(folder);
	assert_true(n > 0);
}

/* Expect that a broker prints @n_lines lines with @text and ends with @exit_status. */
static void expect_refusal(const struct broker_options *options, int exit_status,
			   unsigned int n_lines, const char *text)
{
	struct broker broker;
	int status = 0;

	assert_false(broker_try_start(&broker, options, &status));
	if (!WIFEXITED(status) || WEXITSTATUS(status) != exit_status ||
	    broker_log_lines(&broker) != n_lines || !broker_log_has(&broker, text)) {
		broker_show_log(&broker);
		fail_msg("wait status 0x%x, expected exit status %d, %u lines and \"%s\"", status,
			 exit_status, n_lines, text);
	}
	broker_remove(&broker);
}

TEST(test_start__unknown_option)
{
	static const char *const wrong[][3] = {
		{"--gpu=purple", NULL, "--gpu wants"},
		{"--spin=-3", NULL, "--spin wants"},
		{"--workers=0", NULL, "--workers wants"},
		{"--socket-mode=999", NULL, "--socket-mode wants"},
		{"--threshold=lots", NULL, "--threshold wants"},
		{"surplus", NULL, "unexpected argument 'surplus'"},
	};
	const struct broker_options unknown = {.args = (const char *const[]){"--fast", NULL}};
	const struct broker_options missing = {.args = (const char *const[]){"--gpu", NULL}};

	for (unsigned int i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
		const struct broker_options options = {.args = wrong[i]};

		expect_refusal(&options, 2, 1, wrong[i][2]);
	}
	expect_refusal(&unknown, 2, 1, "--fast is not an option");
	expect_refusal(&missing, 2, 1, "--gpu is missing its value");
}

TEST(test_start__socket_in_use)
{
	struct rbk *rbk;

	BROKER(broker, NULL);
	expect_refusal(&(struct broker_options){.socket_path = broker.socket_path}, 2, 1,
		       "another brokerd, or a service manager, listens on");
	/* The running broker is not affected. */
	rbk = broker_connect(&broker, "after");
	rbk_disconnect(rbk);
}

/* A service manager listens without a lock, also while its service does not run. */
TEST(test_start__socket_of_a_manager)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX}, peer;
	socklen_t peer_bytes = sizeof(peer);
	char folder[] = "/tmp/rbk-test-manager-XXXXXX", lock_path[120];
	const uint64_t start_ns = harness_now_ns();
	int fd, client;

	assert_non_null(mkdtemp(folder));
	snprintf(address.sun_path, sizeof(address.sun_path), "%s/sock", folder);
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	assert_true(fd >= 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	assert_int_equal(listen(fd, 4), 0);
	expect_refusal(&(struct broker_options){.socket_path = address.sun_path}, 2, 1,
		       "another brokerd, or a service manager, listens on");
	/* It is not waited for as for a process that has ended. */
	assert_true(harness_now_ns() - start_ns < harness_slow_ns(15000000000));
	/* The second broker's test connection comes first; clients can still connect. */
	client = accept(fd, (struct sockaddr *)&peer, &peer_bytes);
	assert_true(client >= 0);
	close(client);
	client = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	assert_int_equal(connect(client, (struct sockaddr *)&address, sizeof(address)), 0);
	close(client);
	close(fd);
	snprintf(lock_path, sizeof(lock_path), "%s.lock", address.sun_path);
	unlink(lock_path);
	unlink(address.sun_path);
	rmdir(folder);
}

TEST(test_start__socket_left_behind)
{
	struct broker killed, next;
	struct rbk *rbk;
	int status = 0;

	broker_start(&killed, NULL);
	broker_kill(&killed);
	assert_int_equal(access(killed.socket_path, F_OK), 0);
	assert_true(broker_try_start(
		&next, &(struct broker_options){.socket_path = killed.socket_path}, &status));
	rbk = broker_connect(&next, "next");
	rbk_disconnect(rbk);
	broker_stop(&next);
	broker_remove(&killed);
}

/* Hold a listening socket until 3 s after the first connection. */
static void hold_for_seconds(int fd)
{
	struct pollfd first = {.fd = fd, .events = POLLIN};

	poll(&first, 1, 60000);
	harness_sleep_ms(3000);
}

/* Ask the first process that connects to end, and hold the socket until it has ended. */
static void hold_until_peer_ends(int fd)
{
	struct ucred peer;
	socklen_t peer_bytes = sizeof(peer);
	int client = accept(fd, NULL, NULL);

	if (getsockopt(client, SOL_SOCKET, SO_PEERCRED, &peer, &peer_bytes))
		return;
	kill(peer.pid, SIGTERM);
	while (kill(peer.pid, 0) == 0)
		harness_sleep_ms(10);
}

/* Listen at @path in a process that ends while a child holds its socket until @hold returns. */
static void leave_listener(const char *path, void (*hold)(int fd))
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd, status;
	pid_t pid;

	strcpy(address.sun_path, path);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
		if (bind(fd, (struct sockaddr *)&address, sizeof(address)) || listen(fd, 512))
			_exit(1);
		pid = fork();
		if (pid == 0) {
			alarm(120);
			hold(fd);
		}
		_exit(pid < 0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

/*
 * The kernel may close a socket long after its process has ended: here a child holds it as the
 * io_uring of a killed broker does on a busy machine. A broker that starts at once waits for that,
 * longer than for a process that lives, and says so.
 */
TEST(test_start__socket_of_an_ended_process)
{
	char folder[] = "/tmp/rbk-test-ended-XXXXXX", path[100], lock_path[120];
	const struct broker_options options = {.socket_path = path};
	struct broker broker;

	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/sock", folder);
	snprintf(lock_path, sizeof(lock_path), "%s.lock", path);
	leave_listener(path, hold_for_seconds);
	broker_start(&broker, &options);
	assert_true(broker_log_has(&broker, "has ended, but the kernel"));
	broker_stop(&broker);
	unlink(lock_path);
	snprintf(lock_path, sizeof(lock_path), "%s/sock.admin.lock", folder);
	unlink(lock_path);
	assert_int_equal(rmdir(folder), 0);
}

/* A broker that is stopped while it waits, as its service may be, ends at once. */
TEST(test_start__stopped_while_it_waits)
{
	char folder[] = "/tmp/rbk-test-waits-XXXXXX", path[100], lock_path[120];
	const struct broker_options options = {.socket_path = path};
	struct broker broker;
	int status;

	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/sock", folder);
	snprintf(lock_path, sizeof(lock_path), "%s.lock", path);
	leave_listener(path, hold_until_peer_ends);
	assert_false(broker_try_start(&broker, &options, &status));
	if (status != 0)
		broker_show_log(&broker);
	assert_int_equal(status, 0);
	broker_remove(&broker);
	unlink(path);
	unlink(lock_path);
	assert_int_equal(rmdir(folder), 0);
}

/* Become a user who sees only its own processes in /proc. */
static void see_no_other_process(void)
{
	if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	    mount("proc", "/proc", "proc", 0, "hidepid=2"))
		_exit(124);
	if (setgid(65534) < 0 || setuid(65534) < 0)
		_exit(125);
}

/* A process of another user that /proc hides has not ended. */
TEST(test_start__socket_of_a_hidden_process)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	char folder[] = "/tmp/rbk-test-hidden-XXXXXX", lock_path[120];
	const struct broker_options options = {.socket_path = address.sun_path,
					       .in_child = see_no_other_process};
	struct broker broker;
	bool is_hidden;
	int fd, status = 0;

	if (getuid() != 0)
		skip();
	assert_non_null(mkdtemp(folder));
	assert_int_equal(chmod(folder, 0777), 0);
	snprintf(address.sun_path, sizeof(address.sun_path), "%s/sock", folder);
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	assert_true(fd >= 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	assert_int_equal(chmod(address.sun_path, 0777), 0);
	assert_int_equal(listen(fd, 64), 0);
	assert_false(broker_try_start(&broker, &options, &status));
	is_hidden = status != 124 << 8;
	if (is_hidden) {
		assert_int_equal(status, 2 << 8);
		assert_false(broker_log_has(&broker, "has ended"));
	}
	broker_remove(&broker);
	close(fd);
	snprintf(lock_path, sizeof(lock_path), "%s.lock", address.sun_path);
	unlink(lock_path);
	unlink(address.sun_path);
	assert_int_equal(rmdir(folder), 0);
	if (!is_hidden)
		skip();
}

TEST(test_start__path_is_a_file)
{
	char path[] = "/tmp/rbk-test-file-XXXXXX", lock_path[64];
	char text[16] = "";
	int fd = mkstemp(path);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, "precious", 8), 8);
	expect_refusal(&(struct broker_options){.socket_path = path}, 2, 1, path);
	/* The broker removes no other file to make room for a socket. */
	assert_int_equal(access(path, F_OK), 0);
	assert_int_equal(pread(fd, text, sizeof(text), 0), 8);
	assert_string_equal(text, "precious");
	close(fd);
	unlink(path);
	snprintf(lock_path, sizeof(lock_path), "%s.lock", path);
	unlink(lock_path);
}

TEST(test_start__path_is_impossible)
{
	expect_refusal(&(struct broker_options){.socket_path = "/nonexistent/folder/sock"}, 2, 1,
		       "the folder does not exist");
}

static void become_nobody(void)
{
	if (setgid(65534) < 0 || setuid(65534) < 0)
		_exit(125);
}

TEST(test_start__no_permission)
{
	char dir[] = "/tmp/rbk-test-XXXXXX", path[64];

	if (geteuid() != 0) {
		print_message("needs root to become another user\n");
		skip();
	}
	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/sock", dir);
	expect_refusal(&(struct broker_options){.socket_path = path, .in_child = become_nobody}, 2,
		       1, "no permission");
	rmdir(dir);
}

static void allow_no_threads(void)
{
	const struct rlimit none = {0, 0};

	if (setrlimit(RLIMIT_NPROC, &none) < 0)
		_exit(125);
	/* The limit does not apply to root. */
	become_nobody();
}

TEST(test_start__no_threads)
{
	char dir[] = "/tmp/rbk-test-XXXXXX", path[64];
	const struct broker_options options = {.socket_path = path, .in_child = allow_no_threads};

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	print_message("sanitizers need threads of their own\n");
	skip();
#endif
	if (geteuid() != 0) {
		print_message("needs root to become another user\n");
		skip();
	}
	assert_non_null(mkdtemp(dir));
	assert_int_equal(chmod(dir, 0777), 0);
	snprintf(path, sizeof(path), "%s/sock", dir);
	expect_refusal(&options, 1, 1, "cannot start");
	rmdir(dir);
}

/* ---- Sleeping ---- */

TEST(test_idle__uses_no_cpu)
{
	enum { N_SESSIONS = 50 };
	struct rbk *sessions[N_SESSIONS];
	struct rbk_ring *rings[N_SESSIONS];
	struct broker_usage before, after;
	const struct rbk_cqe *cqe;
	uint64_t end_ns;

	BROKER(broker, NULL);
	for (unsigned int i = 0; i < N_SESSIONS; i++) {
		sessions[i] = broker_connect(&broker, "idle");
		assert_int_equal(rbk_ring_new(sessions[i], 64, &rings[i], NULL), 0);
		rbk_prep_nop(rbk_get_sqe(rings[i]));
		assert_int_equal(rbk_submit_and_wait(rings[i], 1), 1);
		assert_int_equal(rbk_peek_cqe(rings[i], &cqe), 0);
		rbk_cqe_seen(rings[i], cqe);
	}
	/*
	 * The broker falls asleep in the end; on a busy machine its remaining work may take a
	 * while.
	 */
	end_ns = harness_now_ns() + harness_slow_ns(20000000000);
	do {
		broker_usage(&broker, &before);
		harness_sleep_ms(2000);
		broker_usage(&broker, &after);
	} while (after.n_switches != before.n_switches && harness_now_ns() < end_ns);
	assert_int_equal(after.n_switches, before.n_switches);

	for (unsigned int i = 0; i < N_SESSIONS; i++) {
		rbk_ring_free(rings[i]);
		rbk_disconnect(sessions[i]);
	}
}

/* ---- Ending ---- */

TEST(test_stop__finishes_tasks_in_flight)
{
	enum { N_TASKS = 64 };
	const struct rbk_cqe *cqe;
	struct rbk_ring *ring;
	struct broker broker;
	unsigned int n = 0;
	struct work work;
	struct rbk *rbk;
	int r;

	broker_start(&broker,
		     &(struct broker_options){.args = (const char *const[]){"--workers=1", NULL}});
	rbk = broker_connect(&broker, "stopped");
	work_make(&work, rbk);
	assert_int_equal(rbk_ring_new(rbk, N_TASKS, &ring, NULL), 0);
	work_submit(&work, ring, N_TASKS, RBK_STRATEGY_AUTO);
	while (rbk_sq_ready(ring) > 0)
		harness_sleep_ms(1);
	kill(broker.pid, SIGTERM);
	/*
	 * All tasks were admitted, so that each completes with result 0; only then the session
	 * ends.
	 */
	while ((r = rbk_wait_cqe_timeout(ring, &cqe, 60000000000)) == 0) {
		assert_int_equal(cqe->res, 0);
		rbk_cqe_seen(ring, cqe);
		n++;
	}
	assert_int_equal(r, -ECONNRESET);
	assert_int_equal(n, N_TASKS);
	assert_int_equal(rbk_submit(ring), -ECONNRESET);

	assert_int_equal(broker_wait(&broker), 0);
	work_free(&work);
	rbk_ring_free(ring);
	rbk_disconnect(rbk);
	broker_remove(&broker);
}

struct pusher {
	struct rbk_ring *ring;
	const struct work *work;
	uint64_t n_done;
	int result;
	bool wrong;
};

/*
 * Keep tasks in flight until the broker is gone. They never fill the ring, so that there is always
 * an entry that the broker could take.
 */
static void *push(void *data)
{
	struct pusher *pusher = data;
	const struct rbk_cqe *cqe;
	uint64_t n_submitted = 0;

	do {
		for (; n_submitted < pusher->n_done + 8; n_submitted++)
			rbk_prep_run(rbk_get_sqe(pusher->ring), rbk_plan_id(pusher->work->plan),
				     WORK_COUNT, pusher->work->refs, 3);
		pusher->result = rbk_submit(pusher->ring);
		while (pusher->result >= 0 && rbk_peek_cqe(pusher->ring, &cqe) == 0) {
			pusher->wrong |= cqe->res != 0;
			rbk_cqe_seen(pusher->ring, cqe);
			pusher->n_done++;
		}
		if (pusher->result >= 0)
			pusher->result = rbk_wait_cqe_timeout(pusher->ring, &cqe, 60000000000);
	} while (pusher->result >= 0);
	return NULL;
}

/* A client that always submits more does not keep the broker from stopping. */
TEST(test_stop__under_load)
{
	struct pusher pusher = {0};
	struct broker broker;
	struct work work;
	struct rbk *rbk;
	pthread_t thread;

	broker_start(&broker,
		     &(struct broker_options){.args = (const char *const[]){"--workers=1", NULL}});
	rbk = broker_connect(&broker, "pusher");
	work_make(&work, rbk);
	assert_int_equal(rbk_ring_new(rbk, 32, &pusher.ring, NULL), 0);
	pusher.work = &work;
	assert_int_equal(pthread_create(&thread, NULL, push, &pusher), 0);
	harness_sleep_ms(200);
	kill(broker.pid, SIGTERM);
	assert_int_equal(broker_wait(&broker), 0);
	pthread_join(thread, NULL);
	assert_int_equal(pusher.result, -ECONNRESET);
	assert_false(pusher.wrong);
	assert_true(pusher.n_done > 0);

	work_free(&work);
	rbk_ring_free(pusher.ring);
	rbk_disconnect(rbk);
	broker_remove(&broker);
}

/* Each task takes a second of the device: none completes during the test. */
TEST(test_stop__twice_at_once)
{
	enum { N_TASKS = 1024 };
	const struct broker_options options = {
		.args = (const char *const[]){"--gpu=none", "--test-device=1000ms", NULL}};
	struct rbk_ring *ring;
	struct broker broker;
	struct work work;
	struct rbk *rbk;
	int status;

	broker_start(&broker, &options);
	rbk = broker_connect(&broker, "stopped");
	work_make(&work, rbk);
	assert_int_equal(rbk_ring_new(rbk, N_TASKS, &ring, NULL), 0);
	work_submit(&work, ring, N_TASKS, RBK_STRATEGY_ONLY_GPU);
	while (rbk_sq_ready(ring) > 0)
		harness_sleep_ms(1);
	kill(broker.pid, SIGTERM);
	broker_wait_log(&broker, "finishing the tasks");
	kill(broker.pid, SIGINT);
	status = broker_wait(&broker);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 1);

	work_free(&work);
	rbk_ring_free(ring);
	rbk_disconnect(rbk);
	broker_remove(&broker);
}

/* ---- A broker that is lost ---- */

struct waiter {
	struct broker *broker;
	atomic_int is_waiting;
	int result;
	uint64_t ended_ns;
	int (*wait)(struct rbk *rbk, struct rbk_ring *ring);
};

static int wait_for_completion(struct rbk *rbk, struct rbk_ring *ring)
{
	const struct rbk_cqe *cqe;

	rbk_ring_set_spin_ns(ring, 0);
	return rbk_wait_cqe(ring, &cqe);
}

static int wait_with_timeout(struct rbk *rbk, struct rbk_ring *ring)
{
	const struct rbk_cqe *cqe;

	return rbk_wait_cqe_timeout(ring, &cqe, 60000000000);
}

static int spin_for_completion(struct rbk *rbk, struct rbk_ring *ring)
{
	const struct rbk_cqe *cqe;
	int r;

	while ((r = rbk_peek_cqe(ring, &cqe)) == -EAGAIN)
		;
	return r;
}

static int submit_for_ever(struct rbk *rbk, struct rbk_ring *ring)
{
	const struct rbk_cqe *cqe;
	struct rbk_sqe *sqe;
	int r;

	for (;;) {
		if ((sqe = rbk_get_sqe(ring)))
			rbk_prep_nop(sqe);
		r = rbk_submit(ring);
		if (r < 0)
			return r;
		while ((r = rbk_peek_cqe(ring, &cqe)) == 0)
			rbk_cqe_seen(ring, cqe);
		if (r != -EAGAIN)
			return r;
	}
}

static int make_arenas(struct rbk *rbk, struct rbk_ring *ring)
{
	struct rbk_arena *arena = NULL;
	int r;

	while ((r = rbk_arena_new(rbk, 1 << 20, &arena, NULL)) == 0)
		rbk_arena_free(arena);
	return r;
}

static int ask_for_stats(struct rbk *rbk, struct rbk_ring *ring)
{
	struct rbk_stats stats;
	int r;

	while ((r = rbk_stats(rbk, &stats)) == 0)
		;
	return r;
}

static void *run_waiter(void *data)
{
	struct waiter *waiter = data;
	struct rbk_ring *ring = NULL;
	struct rbk *rbk = NULL;
	struct rbk_options options = {
		.size = sizeof(options),
		.socket_path = waiter->broker->socket_path,
		.timeout_ns = 60000000000,
		.flags = RBK_CONNECT_NO_REATTACH,
	};

	waiter->result = rbk_connect(&options, &rbk, NULL);
	if (waiter->result == 0)
		waiter->result = rbk_ring_new(rbk, 8, &ring, NULL);
	waiter->is_waiting = 1;
	if (waiter->result == 0)
		waiter->result = waiter->wait(rbk, ring);
	waiter->ended_ns = harness_now_ns();
	rbk_ring_free(ring);
	rbk_disconnect(rbk);
	return NULL;
}

/*
 * Each client that does not re-attach is told at once when its broker is killed, whatever it is
 * doing.
 */
TEST(test_kill__every_client_is_told)
{
	static int (*const waits[])(struct rbk * rbk, struct rbk_ring * ring) = {
		wait_for_completion, wait_with_timeout, spin_for_completion,
		submit_for_ever,     make_arenas,       ask_for_stats,
	};
	enum { N = sizeof(waits) / sizeof(*waits) };
	struct waiter waiters[N] = {0};
	struct broker broker;
	uint64_t killed_ns;
	pthread_t threads[N];

	broker_start(&broker, NULL);
	for (unsigned int i = 0; i < N; i++) {
		waiters[i].broker = &broker;
		waiters[i].wait = waits[i];
		assert_int_equal(pthread_create(&threads[i], NULL, run_waiter, &waiters[i]), 0);
	}
	for (unsigned int i = 0; i < N; i++)
		while (!waiters[i].is_waiting)
			harness_sleep_ms(1);
	harness_sleep_ms(100);
	broker_kill(&broker);
	killed_ns = harness_now_ns();
	for (unsigned int i = 0; i < N; i++) {
		pthread_join(threads[i], NULL);
		if (waiters[i].result != -ECONNRESET)
			fail_msg("client %u was told %d, not -ECONNRESET", i, waiters[i].result);
		assert_true(waiters[i].ended_ns < killed_ns + harness_slow_ns(20000000000));
	}
	broker_remove(&broker);
}

/* ---- Running out ---- */

enum { FEW_FDS = 80, TOO_FEW_FDS = 20 };
static rlim_t few_fds = FEW_FDS;

static void allow_few_fds(void)
{
	const struct rlimit few = {few_fds, few_fds};

	setrlimit(RLIMIT_NOFILE, &few);
}

/* Tenants hold all descriptors that they can get, and an administrator can still connect. */
TEST(test_descriptors__some_for_administrators)
{
	enum { N = 200 };
	struct rbk_options options = {
		.size = sizeof(options),
		.timeout_ns = harness_slow_ns(10000000000),
	};
	struct rbk *sessions[N];
	struct broker broker;
	unsigned int n = 0;
	int status;

	broker_start(&broker, &(struct broker_options){.in_child = allow_few_fds});
	options.socket_path = broker.socket_path;
	while (n < N && rbk_connect(&options, &sessions[n], NULL) == 0)
		n++;
	assert_true(n > 0 && n < N);
	rbk_disconnect(broker_connect_admin(&broker, "administrator"));
	assert_false(broker_log_has(&broker, "cannot accept"));
	while (n > 0)
		rbk_disconnect(sessions[--n]);
	broker_stop(&broker);
	broker_remove(&broker);

	/* With too few descriptors for that, the broker says so and ends. */
	few_fds = TOO_FEW_FDS;
	assert_false(broker_try_start(&broker, &(struct broker_options){.in_child = allow_few_fds},
				      &status));
	few_fds = FEW_FDS;
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) != 0);
	assert_true(broker_log_has(&broker, "open files"));
	broker_remove(&broker);
}

TEST(test_descriptors__refused_and_recovers)
{
	enum { N = 200 };
	struct rbk_options options = {.size = sizeof(options), .timeout_ns = 300000000};
	struct rbk *sessions[N] = {NULL}, *first;
	struct rbk_ring *rings[N] = {NULL}, *ring;
	struct rbk_stats stats;
	unsigned int n_sessions = 0, n_rings = 0;
	struct neighbour *neighbour;
	struct broker_usage usage;
	int r;

	BROKER(broker, &(struct broker_options){.in_child = allow_few_fds});
	neighbour = neighbour_start(&broker);
	first = broker_connect(&broker, "first");
	options.socket_path = broker.socket_path;
	for (unsigned int i = 0; i < N; i++) {
		r = rbk_ring_new(first, 8, &rings[i], NULL);
		if (r) {
			assert_true(r == -EDQUOT || r == -EMFILE);
			break;
		}
		n_rings++;
	}
	assert_true(n_rings > 0 && n_rings < N);
	for (unsigned int i = 0; i < 30; i++) {
		if (rbk_connect(&options, &sessions[i], NULL) == 0)
			n_sessions++;
	}
	broker_usage(&broker, &usage);
	assert_true(usage.n_fds <= FEW_FDS);
	/* The first session still works. */
	assert_int_equal(rbk_stats(first, &stats), 0);

	for (unsigned int i = 0; i < N; i++) {
		rbk_ring_free(rings[i]);
		rbk_disconnect(sessions[i]);
	}
	broker_wait_sessions(first, 2);
	assert_int_equal(rbk_ring_new(first, 8, &ring, NULL), 0);
	rbk_ring_free(ring);
	sessions[0] = broker_connect(&broker, "again");
	rbk_disconnect(sessions[0]);
	rbk_disconnect(first);
	neighbour_stop(neighbour);
}

static void allow_little_memory(void)
{
	const struct rlimit little = {544ul << 20, 544ul << 20};

	setrlimit(RLIMIT_AS, &little);
}

TEST(test_memory__refused_and_recovers)
{
	struct rbk_arena *arenas[32] = {NULL};
	struct neighbour *neighbour;
	struct rbk_ring *ring = NULL;
	struct rbk_error error;
	unsigned int n = 0;
	struct rbk *rbk;
	int r = 0;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	print_message("sanitizers need more address space than this test allows\n");
	skip();
#endif
	BROKER(broker, &(struct broker_options){.in_child = allow_little_memory});
	neighbour = neighbour_start(&broker);
	rbk = broker_connect(&broker, "greedy");
	for (n = 0; n < 32; n++) {
		r = rbk_arena_new(rbk, 64 << 20, &arenas[n], &error);
		if (r)
			break;
	}
	assert_int_equal(r, -ENOMEM);
	assert_true(n > 0);
	/* Rings of the largest size may not fit either; small ones do. */
	r = rbk_ring_new(rbk, RBK_MAX_RING_ENTRIES, &ring, &error);
	assert_true(r == 0 || r == -ENOMEM);
	rbk_ring_free(ring);
	for (unsigned int i = 0; i < n; i++)
		rbk_arena_free(arenas[i]);
	assert_int_equal(rbk_arena_new(rbk, 64 << 20, &arenas[0], &error), 0);
	rbk_arena_free(arenas[0]);
	rbk_disconnect(rbk);
	neighbour_stop(neighbour);
}

TEST(test_quota__sessions)
{
	const struct broker_options options = {.policy = "[tenant default]\nsessions-max = 3\n"};
	struct rbk_options connect = {.size = sizeof(connect), .timeout_ns = 60000000000};
	struct rbk_error error = {""};
	struct rbk *sessions[3], *more = NULL;

	BROKER(broker, &options);
	connect.socket_path = broker.socket_path;
	sessions[0] = broker_connect(&broker, "one of three");
	/* The harness's test connection was a session too. */
	broker_wait_sessions(sessions[0], 1);
	for (unsigned int i = 1; i < 3; i++)
		sessions[i] = broker_connect(&broker, "one of three");
	/* The client and the log are told why. */
	assert_int_equal(rbk_connect(&connect, &more, &error), -EDQUOT);
	assert_string_equal(error.text, "no session: tenant default may have 3 sessions "
					"(sessions-max), has 3, and asks for 1 more");
	broker_wait_log(&broker, "refused a connection");
	rbk_disconnect(sessions[0]);
	broker_wait_sessions(sessions[1], 2);
	sessions[0] = broker_connect(&broker, "the next");
	for (unsigned int i = 0; i < 3; i++)
		rbk_disconnect(sessions[i]);
}

/* A small description that needs gigabytes is rejected before anything is allocated. */
TEST(test_quota__scratch_of_a_plan)
{
	const struct broker_options options = {.policy = "[tenant default]\nhost-max = 64MiB\n"};
	const uint32_t dims[] = {RBK_DIM_COUNT, 1024};
	struct rbk_builder *b = rbk_builder_new("large");
	struct rbk_plan *plan = NULL;
	struct rbk_error error = {""};
	struct rbk_stats stats;
	unsigned int x, s, y;
	uint64_t host_bytes;
	struct rbk *rbk;

	x = rbk_builder_input(b, "x", RBK_DTYPE_F32, 2, dims);
	y = rbk_builder_output(b, "y", RBK_DTYPE_F32, 2, dims);
	s = rbk_builder_scratch(b, "s", RBK_DTYPE_F32, RBK_RANK_INFERRED, NULL);
	rbk_builder_unary(b, "Relu", x, s);
	rbk_builder_unary(b, "Relu", s, y);

	BROKER(broker, &options);
	rbk = broker_connect(&broker, "greedy");
	/* The harness's test connection was a session too. */
	broker_wait_sessions(rbk, 1);
	assert_int_equal(rbk_stats(rbk, &stats), 0);
	host_bytes = stats.host_bytes;
	assert_int_equal(rbk_plan_new(rbk, b, 1u << 20, &plan, &error), -EDQUOT);
	assert_non_null(strstr(error.text, "scratch tensors"));
	assert_non_null(strstr(error.text, "64 MiB of host memory"));
	assert_int_equal(rbk_stats(rbk, &stats), 0);
	assert_int_equal(stats.host_bytes, host_bytes);
	assert_int_equal(rbk_plan_new(rbk, b, 16, &plan, &error), 0);
	rbk_plan_free(plan);
	rbk_builder_free(b);
	rbk_disconnect(rbk);
}

TEST_MAIN(NULL, NULL, broker_watch_all(), harness_limit_seconds(55))

/* SPDX-License-Identifier: MIT */
/* Pages that vanish under a registered mapping read as zeros; elsewhere SIGBUS stays deadly */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "session/sigbus.h"
#include "support/test.h"

enum { PAGE = 4096, N_PAGES = 8 };

/* Return a mapping of a file that has been truncated to 0 bytes. */
static uint8_t *truncated_mapping(void)
{
	int fd = memfd_create("gone", MFD_CLOEXEC);
	uint8_t *base;

	/* cmocka installs its own handler before each test. */
	assert_int_equal(sigbus_init(), 0);
	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, N_PAGES * PAGE), 0);
	base = mmap(NULL, N_PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_ptr_not_equal(base, MAP_FAILED);
	memset(base, 0xaa, N_PAGES * PAGE);
	assert_int_equal(ftruncate(fd, 0), 0);
	close(fd);
	return base;
}

static void *read_all(void *data)
{
	volatile uint8_t *base = data;
	uintptr_t sum = 0;

	for (unsigned int i = 0; i < N_PAGES * PAGE; i++)
		sum += base[i];
	return (void *)sum;
}

TEST(test_fault__reads_zeros_and_is_noticed)
{
	uint8_t *base = truncated_mapping(), *other = truncated_mapping();
	atomic_bool flag = false, other_flag = false;
	int slot, other_slot;

	assert_false(sigbus_happened());
	assert_int_equal(sigbus_add(base, N_PAGES * PAGE, &flag, &slot), 0);
	assert_int_equal(sigbus_add(other, N_PAGES * PAGE, &other_flag, &other_slot), 0);
	assert_int_not_equal(slot, other_slot);
	assert_null(read_all(base));
	base[PAGE * 3] = 7;
	assert_int_equal(base[PAGE * 3], 7);
	assert_true(flag);
	assert_false(other_flag);
	assert_true(sigbus_happened());
	assert_false(sigbus_happened());
	sigbus_remove(slot);
	sigbus_remove(other_slot);
	munmap(base, N_PAGES * PAGE);
	munmap(other, N_PAGES * PAGE);
}

TEST(test_fault__on_another_thread)
{
	uint8_t *base = truncated_mapping();
	atomic_bool flag = false;
	pthread_t thread;
	void *sum;
	int slot;

	assert_int_equal(sigbus_add(base, N_PAGES * PAGE, &flag, &slot), 0);
	assert_int_equal(pthread_create(&thread, NULL, read_all, base), 0);
	pthread_join(thread, &sum);
	assert_null(sum);
	assert_true(flag);
	assert_true(sigbus_happened());
	sigbus_remove(slot);
	munmap(base, N_PAGES * PAGE);
}

/*
 * Have a child read @base.
 * Return: the signal that killed the child.
 */
static int death_of_reader(uint8_t *base)
{
	int status;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		read_all(base);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

TEST(test_fault__elsewhere_is_deadly)
{
	uint8_t *base = truncated_mapping();
	atomic_bool flag = false;
	int slot;

	assert_int_equal(death_of_reader(base), SIGBUS);
	assert_int_equal(sigbus_add(base, N_PAGES * PAGE, &flag, &slot), 0);
	assert_int_equal(death_of_reader(base), 0);
	sigbus_remove(slot);
	assert_int_equal(death_of_reader(base), SIGBUS);
	assert_int_equal(sigbus_add(base, (N_PAGES - 1) * PAGE, &flag, &slot), 0);
	assert_int_equal(death_of_reader(base), SIGBUS);
	sigbus_remove(slot);
	munmap(base, N_PAGES * PAGE);
}

TEST(test_table__full)
{
	static uint8_t memory[PAGE];
	static int slots[70000];
	atomic_bool flag = false;
	unsigned int n = 0;
	int slot;

	while (n < 70000 && sigbus_add(memory, sizeof(memory), &flag, &slots[n]) == 0)
		n++;
	assert_int_equal(n, 65536);
	assert_int_equal(sigbus_add(memory, sizeof(memory), &flag, &slot), -ENOSPC);
	sigbus_remove(slots[4711]);
	assert_int_equal(sigbus_add(memory, sizeof(memory), &flag, &slot), 0);
	assert_int_equal(slot, slots[4711]);
	while (n > 0)
		sigbus_remove(slots[--n]);
	sigbus_remove(-1);
}

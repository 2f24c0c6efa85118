/* SPDX-License-Identifier: MIT */
/* State of the layer in this process: see process.h. */
#include "libclient/layer/process.h"

#include <errno.h>
#include <signal.h>
#include <sys/mman.h>

#include "libclient/layer/say.h"

struct process *layer_process;

void *process_pages(size_t bytes)
{
	void *memory =
		mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
		return NULL;
	if (madvise(memory, bytes, MADV_WIPEONFORK)) {
		munmap(memory, bytes);
		return NULL;
	}
	return memory;
}

int process_init(void)
{
	if (!layer_process)
		layer_process = process_pages(sizeof(*layer_process));
	return layer_process ? 0 : -ENOMEM;
}

pthread_mutex_t *process_list_lock(void)
{
	return &layer_process->list_lock;
}

void process_set_up(void)
{
	if (layer_process->is_set_up)
		return;
	environment_read(&layer_process->environment);
	say_open(layer_process->environment.log_path);
	pthread_rwlock_init(&layer_process->using, NULL);
	layer_process->is_set_up = 1;
}

int process_thread(pthread_t *ret, const char *name, void *(*run)(void *data), void *data)
{
	sigset_t all, before;
	pthread_t thread;
	int r;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	r = pthread_create(&thread, NULL, run, data);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (r)
		return r;
	pthread_setname_np(thread, name);
	if (ret)
		*ret = thread;
	else
		pthread_detach(thread);
	return 0;
}

bool process_enter_driver(void)
{
	__atomic_fetch_add(&layer_process->n_in_driver, 1, __ATOMIC_SEQ_CST);
	if (!__atomic_load_n(&layer_process->is_exiting, __ATOMIC_SEQ_CST))
		return true;
	__atomic_fetch_sub(&layer_process->n_in_driver, 1, __ATOMIC_SEQ_CST);
	return false;
}

void process_leave_driver(void)
{
	__atomic_fetch_sub(&layer_process->n_in_driver, 1, __ATOMIC_SEQ_CST);
}

uint64_t process_wait_ns(void)
{
	return layer_process->environment.wait_ns;
}

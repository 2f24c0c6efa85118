/* SPDX-License-Identifier: MIT */
/*
 * Shared memory objects: exported memory, and imported
 *
 * Without objects, a program could export, free and import again to use memory without a charge. An
 * exported allocation transfers its credit to the object. The broker then charges the object, and
 * the member's credit falls by that amount. If the broker does not take the object, because it is
 * gone or has too many, the object keeps the credit.
 *
 * Memory lives as long as any descriptor made of it. Memory that this process allocated stays
 * charged here until no holder remains in any process (holders.h); where holders cannot be
 * detected, for ever. For imported memory /proc/self/fd tells whether this process has a
 * descriptor; holders in other processes are charged to the process that allocated it. An object
 * kept for its descriptors is checked again each second, and whenever its release could change the
 * result of a refusal, a free or a query.
 *
 * All of this happens under the lock of the device's objects, requests to the broker included.
 * Exports and imports are rare, and an object must not be dropped at the broker after it was added
 * anew.
 */
#include "libclient/layer/objects.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <ringbroker/lease.h>

#include "libclient/layer/gpu.h"
#include "libclient/layer/holders.h"
#include "libclient/layer/process.h"
#include "libclient/private.h"

enum { SEARCH_FDS_MAX = 4096 };

struct object {
	struct object *next;
	uint64_t dev, ino;
	uint64_t bytes;
	uint64_t credit_bytes; /* credit of this member spent on the object */
	struct holders *holders;
	uint32_t n_owners; /* allocations; 0: only descriptors keep the object */
	bool is_known;     /* known to the broker */
	bool is_had;       /* an allocation of the object was exported, or freed, here */
	bool is_made;      /* an allocation of this process was exported */
	bool is_found;     /* found by the last search for descriptors */
};

static struct object *find(struct gpu *gpu, uint64_t dev, uint64_t ino)
{
	struct object *object = gpu->objects;

	while (object && (object->dev != dev || object->ino != ino))
		object = object->next;
	return object;
}

static struct object *add(struct gpu *gpu, const struct stat *stat, uint64_t bytes)
{
	struct object *object = calloc(1, sizeof(*object));

	if (!object)
		return NULL;
	object->dev = stat->st_dev;
	object->ino = stat->st_ino;
	object->bytes = bytes;
	object->next = gpu->objects;
	gpu->objects = object;
	return object;
}

/*
 * Add an object at the broker as rbk_lease_object_add() does; tell_drop() drops one as
 * rbk_lease_object_drop() does, without waiting for the answer. Neither waits while the leases move
 * to another connection, but returns -EBUSY; @is_moving: the caller moves the leases. Under
 * objects_lock.
 */
static int tell_add(struct gpu *gpu, uint64_t dev, uint64_t ino, uint64_t bytes,
		    uint64_t from_credit_bytes, bool is_moving)
{
	uint64_t charged_bytes;
	int r;

	if (!is_moving && pthread_rwlock_tryrdlock(&layer_process->using))
		return -EBUSY;
	r = rbk_lease_object_add(gpu->lease, dev, ino, bytes, from_credit_bytes, &charged_bytes,
				 NULL);
	if (!r)
		__atomic_fetch_sub(&gpu->account.credit_bytes, from_credit_bytes, __ATOMIC_RELAXED);
	if (!is_moving)
		pthread_rwlock_unlock(&layer_process->using);
	return r;
}

static int tell_drop(struct gpu *gpu, uint64_t dev, uint64_t ino)
{
	int r;

	if (pthread_rwlock_tryrdlock(&layer_process->using))
		return -EBUSY;
	r = client_lease_object_drop(gpu->lease, dev, ino);
	pthread_rwlock_unlock(&layer_process->using);
	return r;
}

/* Have the broker charge the object instead of the credit, if it accepts the object. */
static void tell(struct gpu *gpu, struct object *object, bool is_moving)
{
	if (tell_add(gpu, object->dev, object->ino, object->bytes, object->credit_bytes, is_moving))
		return;
	object->is_known = true;
	object->credit_bytes = 0;
}

/* Count another allocation of the object. */
static void own(struct gpu *gpu, struct object *object, unsigned int heap)
{
	if (object->n_owners++ > 0) {
		__atomic_fetch_add(&gpu->twice_bytes[heap], object->bytes, __ATOMIC_RELAXED);
		return;
	}
	/* Until now only a descriptor kept the object. */
	__atomic_fetch_sub(&gpu->kept_bytes, object->bytes, __ATOMIC_RELAXED);
	__atomic_fetch_sub(&gpu->n_kept, 1, __ATOMIC_RELAXED);
}

/*
 * Return true if fstat() identifies the object. It does not where the descriptor is that of a
 * device, as with some drivers, nor where the kernel uses its shared inode for anonymous files.
 */
static bool has_name(const struct stat *stat)
{
	struct stat anonymous;
	int fd, r;

	if (S_ISCHR(stat->st_mode) || S_ISBLK(stat->st_mode))
		return false;
	fd = eventfd(0, EFD_CLOEXEC);
	if (fd < 0)
		return true;
	r = fstat(fd, &anonymous);
	close(fd);
	return r || anonymous.st_dev != stat->st_dev || anonymous.st_ino != stat->st_ino;
}

/* ---- Descriptors ---- */

static void mark(struct gpu *gpu, int fd, const struct stat *stat)
{
	struct object *object = find(gpu, stat->st_dev, stat->st_ino);

	if (object && !holders_is_own(object->holders, fd))
		object->is_found = true;
}

/* Search without /proc. */
static void search_numbers(struct gpu *gpu)
{
	struct stat stat;

	for (int fd = 0; fd < SEARCH_FDS_MAX; fd++)
		if (!fstat(fd, &stat))
			mark(gpu, fd, &stat);
}

/* Mark the objects of which this process has a descriptor. */
static void search(struct gpu *gpu)
{
	DIR *directory = opendir("/proc/self/fd");
	struct stat stat;

	for (struct object *object = gpu->objects; object; object = object->next)
		object->is_found = false;
	if (!directory) {
		search_numbers(gpu);
		return;
	}
	/* fstatat() follows each link to the open file. */
	for (struct dirent *entry; (entry = readdir(directory));)
		if (entry->d_name[0] != '.' && !fstatat(dirfd(directory), entry->d_name, &stat, 0))
			mark(gpu, atoi(entry->d_name), &stat);
	closedir(directory);
}

/* Forget an object, and drop it at the broker. Return: false if the broker could not be told. */
static bool forget(struct gpu *gpu, struct object **link)
{
	struct object *object = *link;
	int r = object->is_known ? tell_drop(gpu, object->dev, object->ino) : 0;

	if (r == -EBUSY || r == -ENOMEM)
		return false;
	*link = object->next;
	holders_free(object->holders);
	if (object->credit_bytes > 0)
		__atomic_fetch_add(&gpu->account.free_bytes, object->credit_bytes,
				   __ATOMIC_SEQ_CST);
	free(object);
	return true;
}

/* Return true if the object is still in use. After search(). */
static bool is_held(const struct object *object)
{
	return object->n_owners > 0 || object->is_found ||
	       (object->is_made && holders_any(object->holders));
}

/* Forget all objects that are neither allocated nor open. Under the lock. */
static void sweep(struct gpu *gpu)
{
	struct object **link = &gpu->objects;

	search(gpu);
	while (*link) {
		struct object *object = *link;
		uint64_t bytes = object->bytes;

		if (is_held(object) || !forget(gpu, link)) {
			link = &object->next;
			continue;
		}
		__atomic_fetch_sub(&gpu->kept_bytes, bytes, __ATOMIC_RELAXED);
		__atomic_fetch_sub(&gpu->n_kept, 1, __ATOMIC_RELAXED);
	}
}

void objects_sweep(struct gpu *gpu)
{
	if (!gpu_is_ours(gpu) || __atomic_load_n(&gpu->n_kept, __ATOMIC_RELAXED) == 0)
		return;
	gpu_note_peak(gpu);
	pthread_mutex_lock(&gpu->objects_lock);
	sweep(gpu);
	pthread_mutex_unlock(&gpu->objects_lock);
	account_trim(&gpu->account);
}

/*
 * Undo an allocation that failed. Under the lock. Return: false: the object remains, as forget().
 */
static bool undo(struct gpu *gpu, struct object *object)
{
	struct object **link = &gpu->objects;

	if (object->is_had)
		return false;
	while (*link != object)
		link = &(*link)->next;
	return forget(gpu, link);
}

void objects_drop(struct gpu *gpu, struct object *object, unsigned int heap, bool is_undone)
{
	if (!gpu_is_ours(gpu))
		return;
	pthread_mutex_lock(&gpu->objects_lock);
	object->is_had |= !is_undone;
	if (--object->n_owners > 0) {
		__atomic_fetch_sub(&gpu->twice_bytes[heap], object->bytes, __ATOMIC_RELAXED);
	} else if (!is_undone || !undo(gpu, object)) {
		__atomic_fetch_add(&gpu->kept_bytes, object->bytes, __ATOMIC_RELAXED);
		__atomic_fetch_add(&gpu->n_kept, 1, __ATOMIC_RELAXED);
		sweep(gpu);
	}
	pthread_mutex_unlock(&gpu->objects_lock);
	account_trim(&gpu->account);
}

/* ---- Exporting and importing ---- */

struct object *objects_export(struct gpu *gpu, struct object *object, int fd, uint64_t bytes,
			      unsigned int heap)
{
	struct object *known;
	struct stat stat;

	if (!gpu_is_ours(gpu) || fstat(fd, &stat) || !has_name(&stat))
		return object;
	pthread_mutex_lock(&gpu->objects_lock);
	known = find(gpu, stat.st_dev, stat.st_ino);
	if (known == object && object) {
		if (object->holders && !holders_add(object->holders, fd))
			object->holders = holders_free(object->holders);
		goto out;
	}
	if (known) {
		/* Two allocations of one object: the second was charged separately. */
		if (!object) {
			own(gpu, known, heap);
			__atomic_fetch_add(&gpu->account.free_bytes, bytes, __ATOMIC_SEQ_CST);
			object = known;
		}
		goto out;
	}
	if (object) {
		/*
		 * The driver made another descriptor of the same memory, which identifies it from
		 * now on.
		 */
		if (object->is_known && !tell_drop(gpu, object->dev, object->ino)) {
			object->is_known = false;
		}
		object->dev = stat.st_dev;
		object->ino = stat.st_ino;
	} else {
		object = add(gpu, &stat, bytes);
		if (!object)
			goto out;
		object->n_owners = 1;
		object->credit_bytes = bytes;
	}
	object->is_had = true;
	object->is_made = true;
	object->holders = holders_free(object->holders);
	object->holders = holders_new(fd);
	tell(gpu, object, false);
out:
	pthread_mutex_unlock(&gpu->objects_lock);
	return object;
}

/* Return the object's true size: the importer may state less. */
static uint64_t bytes_of(int fd, const struct stat *stat, uint64_t bytes)
{
	off_t end = stat->st_size;

	/*
	 * Some dma-bufs report their size only by lseek(); they have no file position to disturb.
	 */
	if (end == 0) {
		end = lseek(fd, 0, SEEK_END);
		lseek(fd, 0, SEEK_SET);
	}
	if (end < 0 || (uint64_t)end <= bytes)
		return bytes;
	return ((uint64_t)end + 4095) / 4096 * 4096;
}

/*
 * Import an object with a charge to @credit_bytes; 0: to an existing charge, or to the lease's free
 * bytes. Under the lock.
 */
static int import_known(struct gpu *gpu, const struct stat *stat, uint64_t bytes,
			uint64_t credit_bytes, unsigned int heap, struct object **ret)
{
	struct object *object = find(gpu, stat->st_dev, stat->st_ino);
	int r;

	if (object) {
		own(gpu, object, heap);
		if (credit_bytes > 0)
			__atomic_fetch_add(&gpu->account.free_bytes, credit_bytes,
					   __ATOMIC_SEQ_CST);
		*ret = object;
		return 0;
	}
	r = tell_add(gpu, stat->st_dev, stat->st_ino, bytes, credit_bytes, false);
	if (r && credit_bytes == 0)
		return r;
	object = add(gpu, stat, bytes);
	if (!object) {
		if (!r)
			tell_drop(gpu, stat->st_dev, stat->st_ino);
		else
			__atomic_fetch_add(&gpu->account.free_bytes, credit_bytes,
					   __ATOMIC_SEQ_CST);
		return -ENOMEM;
	}
	object->is_known = !r;
	object->credit_bytes = r ? credit_bytes : 0;
	object->n_owners = 1;
	*ret = object;
	return 0;
}

int objects_import(struct gpu *gpu, int fd, uint64_t bytes, unsigned int heap, uint64_t wait_ns,
		   struct object **ret, uint64_t *ret_bytes)
{
	struct object *object = NULL;
	struct stat stat;
	int r;

	if (!gpu_is_ours(gpu))
		return -ECHILD;
	if (fstat(fd, &stat))
		return -errno;
	if (!has_name(&stat)) {
		*ret = NULL;
		*ret_bytes = bytes;
		return account_charge(&gpu->account, bytes, wait_ns);
	}
	bytes = bytes_of(fd, &stat, bytes);
	pthread_mutex_lock(&gpu->objects_lock);
	r = import_known(gpu, &stat, bytes, 0, heap, &object);
	pthread_mutex_unlock(&gpu->objects_lock);
	if (r) {
		/*
		 * The lease must grow for the object, or the broker does not answer: charge credit.
		 */
		r = account_charge(&gpu->account, bytes, wait_ns);
		if (r)
			return r;
		pthread_mutex_lock(&gpu->objects_lock);
		r = import_known(gpu, &stat, bytes, bytes, heap, &object);
		pthread_mutex_unlock(&gpu->objects_lock);
		if (r)
			return r;
	}
	*ret = object;
	*ret_bytes = object->bytes;
	return 0;
}

/* ---- After the broker's end ---- */

void objects_restore(struct gpu *gpu)
{
	for (struct object *object = gpu->objects; object; object = object->next)
		if (!object->is_known)
			tell(gpu, object, true);
}

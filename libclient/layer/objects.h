#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * What may be had several times: exported memory, and imported
 *
 * An object is what fstat() says of its descriptors. It is charged once, however often the process
 * has imported it, from when it is first exported or imported until the last allocation of it is
 * freed and no descriptor of it is open any more: anywhere, if it was allocated here, else in this
 * process. The broker knows it by the same name, and so
 * charges it once among all processes of a tenant.
 *
 * Any thread. These may ask the broker; but for import, they never wait for room.
 */
#include <stdbool.h>
#include <stdint.h>

struct gpu;
struct object;

/*
 * The descriptor @fd is an export of an allocation that has @object already; or NULL, and then it
 * is charged @bytes of credit, which become the object's.
 * Return: the object that the allocation has now; NULL: it has none, and everything is as it was.
 */
struct object *objects_export(struct gpu *gpu, struct object *object, int fd, uint64_t bytes,
			      unsigned int heap);

/*
 * Something of at least @bytes is to be imported by @fd; how much is charged for it goes to
 * *ret_bytes. Return: 0 with the object, or with NULL: it has no name, and is charged to credit as
 * what is allocated; -ENOMEM and other errors: it is refused.
 */
int objects_import(struct gpu *gpu, int fd, uint64_t bytes, unsigned int heap, uint64_t wait_ns,
		   struct object **ret, uint64_t *ret_bytes);

/* An allocation of it is freed; or, with @is_undone, there was none after all. */
void objects_drop(struct gpu *gpu, struct object *object, unsigned int heap, bool is_undone);

/* Lets go of what is kept for descriptors that have been closed since. */
void objects_sweep(struct gpu *gpu);

/* Under objects_lock: tells a new broker of those that the one before did not take. */
void objects_restore(struct gpu *gpu);

#pragma once
/* SPDX-License-Identifier: MIT */
/* Declarations about policies shared by the sources of tenant/; private to tenant/. */
#include <stddef.h>

#include "shm/policy-keys.h"
#include "tenant/policy.h"
#include "util/sentences.h"

enum {
	POLICY_WHOLE = 10000, /* hundredths of a percent */
	POLICY_MAX_ERRORS = 64,
	/* Observed driver overhead for command buffers, descriptors and the like: up to 55 MiB. */
	POLICY_LEASE_TOLERANCE_BYTES = 64 << 20,
};

/* A section of a file. */
struct policy_section {
	struct tenant_policy tenant;
	uint32_t match_kinds;
	uid_t *uids;
	gid_t *gids;
	char **cgroups, **exes;
	uint32_t n_uids, n_gids, n_cgroups, n_exes;
	char *reserve_place; /* "FILE:LINE" of vram-reserve; NULL: not given */
};

/* A key of [broker] that another room has read. */
struct policy_setting {
	char *key, *value;
	char *place; /* "FILE:LINE" */
};

struct policy {
	struct policy_section *sections; /* [0] is "default" */
	uint32_t n_sections;
	struct policy_size headroom;
	struct policy_setting *settings;
	uint32_t n_settings;
	char **files; /* that were read */
	uint32_t n_files;
	char *warnings; /* sentences, as in errors; NULL: none */
};

/* Set a section to the defaults of every key. */
void policy_section_init(struct policy_section *section, const char *name);

/* Names by enum rbk_priority. */
extern const char *const policy_priority_names[RBK_PRIORITY_COUNT];
/* Names by enum policy_audit. */
extern const char *const policy_audit_names[POLICY_AUDIT_COUNT];

/* ---- Reading ---- */

/* Keys of a tenant's section. */
enum policy_key {
#define POLICY_KEY(id, ...) POLICY_KEY_##id,
	POLICY_MATCH_KEYS(POLICY_KEY) POLICY_KEYS(POLICY_KEY) POLICY_KEY_COUNT,
#undef POLICY_KEY
};

enum policy_value {
	POLICY_VALUE_MATCH,
	POLICY_VALUE_SIZE,
	POLICY_VALUE_HOST, /* a size of host memory */
	POLICY_VALUE_BYTES,
	POLICY_VALUE_NUMBER,
	POLICY_VALUE_WEIGHT,
	POLICY_VALUE_PROCESSORS,
	POLICY_VALUE_PRIORITY,
	POLICY_VALUE_AUDIT,
	POLICY_VALUE_SWITCH,
	POLICY_VALUE_PROGRAM, /* a leased program's priority, or none */
	POLICY_VALUE_TIME,    /* ns, or 0 for none */
};

struct policy_key_row {
	const char *name;
	enum policy_value kind;
	size_t offset; /* in struct tenant_policy */
	uint64_t min, max;
	bool is_always_shown;
};
extern const struct policy_key_row policy_key_rows[POLICY_KEY_COUNT];

/* Source of a section and its keys; lines count from 1, 0: not given. */
struct policy_places {
	const char *file;
	unsigned int line;
	unsigned int key_lines[POLICY_KEY_COUNT];
};

struct policy_loader {
	struct policy *policy;
	struct policy_places *places; /* by section of the policy */
	const struct policy_broker_keys *broker_keys;
	char **files; /* names; places point to them */
	uint32_t n_files;

	/* State of the parser. */
	const char *file;
	const char *text;
	size_t n_text, at;
	unsigned int line;
	enum { LOADER_NOWHERE, LOADER_IGNORING, LOADER_BROKER, LOADER_TENANT } section;
	uint32_t tenant;          /* index of the section */
	bool is_continuing;       /* the previous line ended in a backslash */
	bool is_main;             /* not a drop-in */
	bool has_complained;      /* the current line has an error */
	unsigned int broker_line; /* line of [broker]; 0: none */
	unsigned int headroom_line;

	struct sentences errors, warnings;
	int error; /* negative errno, sticky; not an error of the file */
};

/*
 * Record an error with its place: "FILE:LINE: KEY: ..." (@line 0: "FILE: ...", @key NULL: without
 * KEY). The text has the first POLICY_MAX_ERRORS.
 */
void policy_complain(struct policy_loader *loader, const char *file, unsigned int line,
		     const char *key, const char *format, ...)
	__attribute__((format(printf, 5, 6)));

/* Record what is allowed but probably not meant, as policy_complain() does. */
void policy_warn(struct policy_loader *loader, const char *file, unsigned int line, const char *key,
		 const char *format, ...) __attribute__((format(printf, 5, 6)));

/* Read @value of @key in the tenant's section that the loader is in. */
void policy_key_read(struct policy_loader *loader, const char *key, const char *value);
/*
 * Read @value of the key @name over @tenant, the present values of section @index of a policy in
 * force, and check both together. @value NULL: only check that the key exists. Match keys cannot be
 * changed.
 * Return: 0; POLICY_E_INVALID: a sentence ("KEY: what is wrong; what is allowed") is in
 * *ret_errors, to be freed; a negative errno.
 */
int policy_key_change(const struct policy *policy, uint32_t index, const char *name,
		      const char *value, enum policy_key *ret_key, struct tenant_policy *tenant,
		      char **ret_errors);
/*
 * Write the value of a key, not a match key, as in the file. Percentages of host memory are
 * converted to bytes of @host_bytes.
 * Return: false if out of memory.
 */
bool policy_key_text(enum policy_key key, const struct tenant_policy *tenant, uint64_t host_bytes,
		     char *ret, size_t bytes);
/* Copy the member of a key; not for match keys. */
void policy_key_copy(enum policy_key key, struct tenant_policy *to,
		     const struct tenant_policy *from);
bool policy_key_is_same(enum policy_key key, const struct tenant_policy *a,
			const struct tenant_policy *b);
bool policy_size_is_same(struct policy_size a, struct policy_size b);
/*
 * Check as policy_check_devices() does, with @tenants, by index, in place of the sections. The
 * first sentence alone is in *ret_error, to be freed. It has neither a place, because the values
 * may come from overrides, nor a line break.
 */
int policy_check_changed(const struct policy *policy, const struct tenant_policy *tenants,
			 const uint64_t *device_bytes, uint32_t n_devices, char **ret_error);
/*
 * Refuse an administrator's change with the first of @sentences, without its place, which has no
 * blank, and without the line break.
 * Return: POLICY_E_INVALID: *ret is to be freed; -ENOMEM.
 */
int policy_refuse_change(const char *sentences, char **ret);

/* Read @value of @key in [broker]. */
void policy_broker_key_read(struct policy_loader *loader, const char *key, const char *value);
/* Check the keys against each other, when all sections are known. */
void policy_check(struct policy_loader *loader);

/*
 * Load as policy_load() does, with @text as the main file, called @name in errors, and no folder
 * beside it.
 */
int policy_load_text(const char *name, const char *text, size_t n_text,
		     const struct policy_broker_keys *keys, struct policy **ret,
		     struct policy_errors *ret_errors);

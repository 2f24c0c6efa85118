/* SPDX-License-Identifier: MIT */
/*
 * Fuzzing the policy file
 *
 * The input is a main file. An accepted file is a policy, which then matches clients, describes its
 * tenants and is checked against devices. A rejected file must yield messages, each of which begins
 * with the file's name and ends with a line break.
 */
#undef NDEBUG /* assertions are the point of this file */
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tenant/policy-private.h"
#include "tenant/tenant.h"
#include "util/log.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static uint32_t check_sentences(const char *sentences)
{
	const char *end;
	uint32_t n = 0;

	for (; sentences && *sentences; sentences = end + 1) {
		end = strchr(sentences, '\n');
		assert(end);
		assert(strncmp(sentences, "f:", 2) == 0);
		n++;
	}
	return n;
}

static void check_errors(const struct policy_errors *errors)
{
	uint32_t n_lines = check_sentences(errors->text);

	assert(errors->n > 0 && n_lines > 0);
	assert(n_lines <= POLICY_MAX_ERRORS ? errors->n == n_lines : errors->n > POLICY_MAX_ERRORS);
	check_sentences(errors->warnings);
}

static int read_key(void *context, const char *key, const char *value,
		    char ret_wanted[POLICY_WANTED_BYTES])
{
	if (strcmp(key, "gpu") != 0)
		return POLICY_E_UNKNOWN;
	if (strcmp(value, "auto") == 0)
		return 0;
	strcpy(ret_wanted, "auto");
	return POLICY_E_INVALID;
}

static void use(struct policy *policy)
{
	static const struct tenants_machine machine = {
		.host_bytes = 1 << 30,
		.vram_bytes = {0, 1 << 20, UINT64_MAX},
		.gtt_bytes = {0, 1 << 20, UINT64_MAX},
		.n_devices = 3,
		.n_fds = 1000,
		.n_mappings = 1000,
	};
	static const gid_t groups[] = {0, 7};
	const struct peer peer = {
		.pid = 1,
		.uid = 1,
		.gid = 1,
		.groups = groups,
		.n_groups = 2,
		.cgroup = "/system.slice/web-aaaaaaaaaaaaaaaaaaaaaa.service/a/a/a/a/a/a/a/b",
	};
	struct account_book *book;
	struct tenants *tenants;
	struct policy_errors errors = {.n = 0};
	char *text;
	int r;

	for (uint32_t i = 0; i < policy_n_tenants(policy); i++) {
		text = policy_describe(policy, i, 1 << 30);
		assert(text && !strchr(text, '\n'));
		free(text);
	}
	assert(policy_match(policy, &peer) < policy_n_tenants(policy));
	assert(account_book_new(&book) == 0);
	r = tenants_new(book, &machine, policy, &tenants, &errors);
	if (r) {
		assert(r == POLICY_E_INVALID);
		check_errors(&errors);
		policy_errors_deinit(&errors);
		policy_free(policy);
	} else {
		for (struct tenant *t = tenants_first(tenants); t; t = tenants_next(tenants, t))
			for (unsigned int i = 0; i < machine.n_devices; i++)
				assert(t->shares[i].reserve <= t->shares[i].high &&
				       t->shares[i].high <= t->shares[i].max);
		tenant_unref(tenants_find(tenants, &peer));
		tenants_free(tenants);
	}
	account_book_free(book);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	const struct policy_broker_keys keys = {.read = read_key};
	struct policy *policy = NULL;
	struct policy_errors errors = {.n = 0};
	int r;

	r = policy_load_text("f", (const char *)data, bytes, &keys, &policy, &errors);
	if (r) {
		assert(r == POLICY_E_INVALID);
		check_errors(&errors);
		policy_errors_deinit(&errors);
	} else {
		use(policy);
	}
	return 0;
}

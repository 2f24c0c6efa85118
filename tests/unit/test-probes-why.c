/* SPDX-License-Identifier: MIT */
/* The sentence for each reason why probes are missing, with its remedy */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "contention/probes-why.h"
#include "contention/run-queue.h"
#include "support/test.h"

static const struct probes_facts fine = {
	.has_btf = true, .has_privilege = true, .has_storage = true, .may_make_map = true};

static void check(struct probes_facts facts, const char *what, const char *remedy)
{
	char text[RUN_QUEUE_WHY_BYTES];
	const char *end;

	assert_ptr_equal(probes_why(&facts, text, sizeof(text)), text);
	assert_non_null(strstr(text, what));
	assert_non_null(strstr(text, remedy));
	/* The text is one complete sentence. */
	end = text + strlen(text) - 1;
	assert_true(*end == '.');
	assert_true(strlen(text) < sizeof(text) - 1);
	assert_null(strchr(text, '\n'));
}

TEST(test_why)
{
	struct probes_facts facts = {0};

	/* If everything is missing, the sentence names the first thing to fix. */
	facts.error = -EPERM;
	check(facts, "/sys/kernel/btf/vmlinux", "CONFIG_DEBUG_INFO_BTF");
	facts.has_btf = true;
	check(facts, "CAP_BPF and CAP_PERFMON", "as root");

	/* Without file descriptors anything may fail first, whatever the error. */
	facts = fine;
	facts.lacks_files = true;
	facts.error = -EINVAL;
	facts.is_refused = true;
	check(facts, "open files", "LimitNOFILE=");

	facts = fine;
	facts.missing = "sched_switch";
	facts.error = -ENOENT;
	check(facts, "no trace point sched_switch", "5.15");

	facts = fine;
	facts.is_locked_down = true;
	facts.error = -EINVAL;
	facts.is_refused = true;
	check(facts, "locked down", "lockdown=integrity");

	facts = fine;
	facts.error = -ENOSYS;
	facts.may_make_map = false;
	check(facts, "no bpf()", "CONFIG_BPF_SYSCALL");

	facts = fine;
	facts.error = -EPERM;
	facts.may_make_map = false;
	facts.has_locked_limit = true;
	check(facts, "refuses BPF", "container");
	facts.may_make_map = true;
	check(facts, "locked memory", "LimitMEMLOCK=infinity");
	facts.has_locked_limit = false;
	check(facts, "could not be loaded (Operation not permitted)", "--log-level debug");

	facts = fine;
	facts.error = -EINVAL;
	facts.has_storage = false;
	check(facts, "no task storage", "5.15");

	facts = fine;
	facts.error = -EACCES;
	facts.is_refused = true;
	check(facts, "verifier refused the probes (Permission denied)", "--log-level debug");

	/* libbpf also reports this error as a refusal. */
	facts.error = -EAGAIN;
	check(facts, "interrupted loading the probes", "restart brokerd");

	facts = fine;
	facts.error = -ENOMEM;
	check(facts, "not enough memory", "memory limit");

	facts = fine;
	facts.is_loaded = true;
	facts.error = -EBUSY;
	check(facts, "could not be attached (Device or resource busy)", "--log-level debug");
}

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the loader has the scheduler do, as programs that it runs by system call. Each argument was checked by the
 * loader; nothing here can fail half-way.
 */
#ifndef ROTA_CONTROL_BPF_H
#define ROTA_CONTROL_BPF_H

#include "kick.bpf.h"
#include "shares.bpf.h"

/*
 * Publishes the table that the loader has put into a buffer (thesis section 4.2.1, "Synchronization-free table
 * switching"). It comes into force at the next boundary that is at least half a round away; CPUs find it by the clock.
 */
SEC("syscall")
int publish_table(struct rota_publish *arg)
{
	u64 now, boundary = arg->boundary_ns, from;
	u32 buffer = arg->buffer, cpu;
	volatile struct rota_table_ref *table;

	if (!boundary || buffer >= ROTA_NR_BUFFERS)
		return -EINVAL;
	table = buffer ? &live.tables[1] : &live.tables[0];
	table->generation = arg->generation;
	bpf_preempt_disable();
	now = bpf_ktime_get_ns();
	from = (now + boundary / 2 + boundary) / boundary * boundary;
	__sync_lock_test_and_set(&table->from_ns, from);
	now = bpf_ktime_get_ns();
	bpf_preempt_enable();
	if (now >= from)
		live.stalled_publishers++;
	arg->from_ns = from;
	arg->stored_ns = now;
	/* So that every CPU sets its timer for the change-over, even one that had nothing to wait for. */
	bpf_for (cpu, 0, nr_host_cpus)
		decide_anew(cpu);
	return 0;
}

/* Those of the tenant that wait in a dispatch queue of shared tenants have no later tag than this one. */
__noinline int tag_at_most(u64 dsq, u32 tenant, u64 latest)
{
	struct bpf_iter_scx_dsq it;
	struct task_struct *p;

	if (scx_bpf_dsq_nr_queued(dsq) <= 0)
		return 0;
	bpf_rcu_read_lock();
	if (!bpf_iter_scx_dsq_new(&it, dsq, 0)) {
		while ((p = bpf_iter_scx_dsq_next(&it))) {
			struct task_ctx *t = task_ctx(p);

			if (!t || t->stands_for != tenant || t->overdue || !vtime_before(latest, t->tag))
				continue;
			t->tag = latest;
			scx_bpf_dsq_move_set_vtime(&it, latest);
			scx_bpf_dsq_move_vtime(&it, p, dsq, 0);
		}
	}
	bpf_iter_scx_dsq_destroy(&it);
	bpf_rcu_read_unlock();
	return 0;
}

/*
 * A tenant has become a shared one, and has a clock as one that has just come; or its weight has grown, and it is ahead
 * by as much service as before, in terms of the new weight: else it would wait until all others have had their weights'
 * part of what it had by its former one.
 */
SEC("syscall")
int reweigh(struct rota_reweigh *arg)
{
	u32 number = arg->tenant, before = arg->weight_before, i;
	struct rota_tenant *tenant = tenant_of(number);
	struct fair_ctx *f = fair_ctx(number);
	u64 v = fair_v(0), clock = v;

	if (!f || !is_shared_tenant(tenant) || before >= tenant->weight)
		return 0;
	bpf_for (i, 0, 4) {
		u64 seen = f->clock;

		if (before && vtime_before(seen, v))
			return 0;
		clock = before ? v + (seen - v) * before / (tenant->weight ?: ROTA_WEIGHT_ONE) : v;
		if (__sync_val_compare_and_swap(&f->clock, seen, clock) == seen)
			break;
	}
	bpf_for (i, 0, settings.nr_domains)
		tag_at_most(DSQ_SHARED(i), number, clock);
	bpf_for (i, 0, nr_host_cpus)
		tag_at_most(DSQ_BOUND(i), number,
			    clock + fair_threads(tenant, f) * weighted(tenant, ROTA_FAIR_SLICE_NS));
	return 0;
}

/*
 * Begins a sample of a tenant (sample.bpf.h). Whoever asks, samples are short and rare: that holds here, so that no
 * loader has to be trusted with it.
 */
SEC("syscall")
int hold_off(struct rota_sample *arg)
{
	u64 now = bpf_ktime_get_ns(), until = now + arg->length_ns;
	u32 cpu;

	if (!arg->length_ns || arg->length_ns > ROTA_SAMPLE_MAX_NS)
		return -EINVAL;
	if (live.sample_until_ns && now < live.sample_until_ns + ROTA_SAMPLE_REST_NS)
		return -EAGAIN;
	live.sample_tenant = arg->tenant;
	__sync_lock_test_and_set(&live.sample_until_ns, until);
	arg->until_ns = until;
	bpf_for (cpu, 0, nr_host_cpus)
		decide_anew(cpu);
	return 0;
}

/* Has every CPU decide anew. */
SEC("syscall")
int kick_all(void *unused)
{
	u32 cpu;

	bpf_for (cpu, 0, nr_host_cpus)
		decide_anew(cpu);
	return 0;
}

#endif /* ROTA_CONTROL_BPF_H */

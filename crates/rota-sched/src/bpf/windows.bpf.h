/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Which vCPU of a CPU is next, where the CPU serves them in windows (window.bpf.h), and until when:
 *
 * 1. A recent vCPU, of several the one that has most of its budget left, in this window and in those before. If another
 *    one's window ends before its own, it may take what it would be due by then if it had woken as it started; or what
 *    all others leave if each of them claims what it may (slack_of). So it runs at once, unless it has had much.
 * 2. Of the vCPUs with a right the one whose window ends first; of several the present one.
 * 3. If no vCPU has a right, one that has something left.
 * 4. What then remains of the CPU is nobody's (order.bpf.h).
 *
 * Rule 1 keeps nobody from what is due to them. A start like that is as good as a wake-up: no more is claimed by any
 * deadline than a line from there on has. And slack is what is left at each deadline beside all claims.
 */
#ifndef ROTA_WINDOWS_BPF_H
#define ROTA_WINDOWS_BPF_H

#include "lost.bpf.h"
#include "pick.bpf.h"
#include "switch.bpf.h"

/* Whether local vCPU `local` waits, and what it may claim. */
__noinline int survey_window(u32 cpu, u32 local, u64 now, u64 prev_dsq)
{
	struct cpu_ctx *c = cpu_ctx(cpu);
	struct rota_cpu_view *view = c ? windows_view(c, cpu) : NULL;
	struct rota_table_vcpu *vcpu = view ? local_here(c, cpu, local) : NULL;
	struct rota_tenant *tenant = vcpu ? tenant_of(vcpu->tenant) : NULL;
	struct window *w;
	bool is_present, waits;
	u64 from, woke;

	if (!c)
		return 0;
	if (!tenant) {
		c->windows.nr = 0;
		return 0;
	}
	w = window_of(c, local);
	w->own = w->service = tenant->first_queue;
	if (tenant->kind == ROTA_KIND_VM)
		w->own += 1 + vcpu->index;
	roll_window(w, vcpu, now);
	c->windows.next = min_time(c->windows.next, w->end);
	if (tenant->class != ROTA_CLASS_RESERVED || !vcpu_waits(vcpu, tenant, prev_dsq, false)) {
		w->rested = now;
		return 0;
	}
	is_present = prev_dsq && local == c->turn.local;
	waits = vcpu_waits(vcpu, tenant, 0, false); /* and not only the present thread would go on */
	from = is_present ? 0 : vcpu_waits_from(w, vcpu, tenant, now);
	woke = is_present ? 0 : vcpu_woke(vcpu, tenant, from);
	if (woke > w->seen && waits) {
		w->woke = woke;
		c->windows.woken |= 1U << (local & 31);
	}
	wants_since(w, from, now);
	/* For this decision, whatever it is, if a vCPU has to stop for it in its own time, or it may pay still. */
	if ((c->windows.woken >> (local & 31) & 1) && prev_dsq && c->turn.local != ROTA_NONE &&
	    (c->turn.level == ROTA_LEVEL_OWNER || w->changes_left))
		pays(w, view->switch_ns);
	else
		c->windows.woken &= ~(1U << (local & 31));
	c->windows.waiting |= 1U << (local & 31);
	if (tenant->nr_vcpus == 1)
		c->windows.alone |= 1U << (local & 31);
	w->right = due_by(w, vcpu, w->end);
	/* Who wakes with next to nothing waits for time that nobody claims. */
	if (w->right >= (is_present || w->since == w->start ? ROTA_WINDOW_LEAST_NS : least_claim(view)))
		c->windows.rights |= 1U << (local & 31);
	return 0;
}

/* The CPU looks at its vCPUs: nothing is known of them yet. */
static __always_inline void begin_survey(struct cpu_ctx *c)
{
	charge_lost(c);
	c->windows.asked = 0; /* and then looks: a waker has counted its thread before */
	c->windows.waiting = c->windows.alone = c->windows.rights = c->windows.woken = 0;
	c->windows.next = ROTA_NEVER;
}

/* Whether no thread waits for local vCPU `local`, nor would the present one go on for it. */
__noinline bool window_rests(u32 cpu, u32 local, u64 now, u64 prev_dsq)
{
	struct cpu_ctx *c = cpu_ctx(cpu);
	struct window *w = c ? window_of(c, local) : NULL;
	struct queue_ctx *own = w ? queue_ctx(w->own) : NULL, *service = own;

	if (!own)
		return false;
	if (w->service != w->own)
		service = queue_ctx(w->service);
	if (!service || own->waiting || service->waiting || now >= w->end || prev_dsq == DSQ_QUEUE(w->own) ||
	    prev_dsq == DSQ_QUEUE(w->service))
		return false;
	w->rested = now;
	c->windows.next = min_time(c->windows.next, w->end);
	return true;
}

/*
 * Whether the same holds for all vCPUs of the CPU, as most often where tenants sleep. It is what survey_windows would
 * find, from what that has found before.
 */
__noinline bool windows_rest(u32 cpu, u64 now, u64 prev_dsq)
{
	struct cpu_ctx *c = cpu_ctx(cpu);
	u32 i;

	if (!c || !c->windows.nr || c->windows.epoch != live.membership_epoch || nr_rehomed)
		return false;
	begin_survey(c);
	bpf_for (i, 0, ROTA_WINDOW_VCPUS_MAX) {
		if (i >= c->windows.nr)
			break;
		if (!window_rests(cpu, i, now, prev_dsq))
			return false;
	}
	c->windows.lost_since = ROTA_NEVER;
	return true;
}

/* Which vCPUs wait, but for those that were tried in vain. Returns whether any does. */
__noinline bool survey_windows(u32 cpu, u64 now, u64 prev_dsq, u32 tried)
{
	struct cpu_ctx *c = cpu_ctx(cpu);
	struct rota_cpu_view *view = c ? windows_view(c, cpu) : NULL;
	u32 i;

	if (!view)
		return false;
	begin_survey(c);
	c->windows.epoch = live.membership_epoch;
	c->windows.nr = view->nr_locals;
	bpf_for (i, 0, ROTA_WINDOW_VCPUS_MAX) {
		if (i >= view->nr_locals)
			break;
		survey_window(cpu, i, now, prev_dsq);
	}
	c->windows.waiting &= ~tried;
	c->windows.rights &= ~tried;
	return c->windows.waiting;
}

/*
 * What a vCPU has had beyond its line, also of what it had early: beyond the line from where it began so. Else it could
 * have what others leave, and begin anew.
 */
static __always_inline u64 beyond_lines(const struct window *w, u64 now)
{
	u64 early = less(now, w->early_since) * w->rate >> WINDOW_RATE_SHIFT;

	return max_time(beyond_line(w, now), less(w->early_used, early));
}

/* What a vCPU that begins now may have by `until`, before the end of its window: as if it woke now. */
static __always_inline u64 early_by(const struct window *w, u64 until, u64 now)
{
	return min_time(w->left, less(less(until, now) * w->rate >> WINDOW_RATE_SHIFT, beyond_lines(w, now)));
}

/*
 * What local vCPU `local` may claim of the time until `until`, at the most: one that sleeps, if it wakes at once. One
 * that waits and is not recent claims nothing before its window ends, and cannot wake. But another vCPU of its tenant
 * may serve all threads that wait for it: then it sleeps, and can.
 */
static __always_inline u64 claims_by(struct cpu_ctx *c, u32 local, u64 until, u64 now)
{
	const struct window *w = window_of(c, local);
	bool waits = c->windows.waiting >> (local & 31) & 1;
	u64 by = min_time(until, w->end), due;

	if (until < w->end && waits && !is_recent(w, now)) {
		if (c->windows.alone >> (local & 31) & 1)
			return 0;
		waits = false;
	}
	/* Of one that waits all that early_by may come to, however often it begins until then. */
	due = waits ? less(less(by, w->since) * w->rate >> WINDOW_RATE_SHIFT, w->used) : early_by(w, by, now);
	return min_time(w->left, due) + (less(until, w->end) * w->rate >> WINDOW_RATE_SHIFT);
}

/* What all others leave to local vCPU `local` at the end of any window, if all claim what they may. */
__noinline u64 slack_of(u32 cpu, u32 local, u64 now)
{
	struct cpu_ctx *c = cpu_ctx(cpu);
	struct rota_cpu_view *view = c ? windows_view(c, cpu) : NULL;
	u64 least = ROTA_NEVER, last = 0;
	u32 i, j;

	if (!view)
		return 0;
	bpf_for (i, 0, ROTA_WINDOW_VCPUS_MAX) {
		u64 until = window_of(c, i)->end, claimed = 2 * view->switch_ns;

		if (i >= view->nr_locals)
			break;
		if (until == last)
			continue;
		last = until;
		bpf_for (j, 0, ROTA_WINDOW_VCPUS_MAX) {
			if (j >= view->nr_locals)
				break;
			claimed += j == local ? less(until, window_of(c, j)->end) * window_of(c, j)->rate >>
							WINDOW_RATE_SHIFT
					      : claims_by(c, j, until, now);
		}
		least = min_time(least, less(until - now, claimed));
	}
	return least;
}

/* Of `among` the vCPU that has most of its budget left, if one is recent; ROTA_NONE. */
static __always_inline u32 most_left(struct cpu_ctx *c, u32 among, u64 now)
{
	u32 i, found = ROTA_NONE;
	u64 most = 0;

	bpf_for (i, 0, ROTA_WINDOW_VCPUS_MAX) {
		u64 part = among >> i & 1 ? part_left(window_of(c, i), now) : 0;

		if (part && i == c->turn.local)
			part += WINDOW_BONUS;
		if (part <= most)
			continue;
		most = part;
		found = i;
	}
	c->windows.part = found == ROTA_NONE ? 0 : most + (found == c->turn.local ? 0 : WINDOW_BONUS);
	return found;
}

/* For how long a recent vCPU may go before local vCPU `first`, which has a right. */
static __always_inline u64 may_go_before(struct cpu_ctx *c, u32 cpu, u32 local, u32 first, u64 now)
{
	const struct window *w = window_of(c, local);
	u64 until = window_of(c, first)->end, due;

	if (w->end <= until)
		due = w->right;
	else if (local == c->turn.local)
		due = less(less(until, w->early_since) * w->rate >> WINDOW_RATE_SHIFT, w->early_used);
	else
		due = early_by(w, until, now);
	return min_time(w->left, max_time(due, slack_of(cpu, local, now)));
}

/* The local vCPU that is next, by the rules above; ROTA_NONE: none. It may go on until windows.until. */
__noinline u32 next_in_window(u32 cpu, u64 now, u64 prev_dsq, u32 tried)
{
	struct cpu_ctx *c = cpu_ctx(cpu);
	struct rota_cpu_view *view;
	u32 first, recent;
	bool waits;
	u64 may;

	if (!c)
		return ROTA_NONE;
	view = windows_view(c, cpu);
	if (!view)
		return ROTA_NONE;
	forfeit(c, cpu, now);
	waits = survey_windows(cpu, now, prev_dsq, tried);
	if (!waits)
		return ROTA_NONE;
	first = first_to_end(c, c->windows.rights ?: c->windows.waiting);
	if (first == ROTA_NONE)
		return ROTA_NONE;
	recent = most_left(c, c->windows.waiting, now);
	if (recent != ROTA_NONE && recent != first && c->windows.rights) {
		may = may_go_before(c, cpu, recent, first, now);
		if (may >= (recent == c->turn.local ? ROTA_WINDOW_GRAIN_NS : least_claim(view))) {
			c->windows.until = min_time(c->windows.next, now + may);
			c->windows.end = window_of(c, recent)->end;
			return recent;
		}
	}
	if (recent != ROTA_NONE && !c->windows.rights && window_of(c, recent)->left >= ROTA_WINDOW_LEAST_NS)
		first = recent;
	if (first != recent)
		c->windows.part = 0;
	may = c->windows.rights ? window_of(c, first)->right : window_of(c, first)->left;
	c->windows.until = min_time(c->windows.next, now + may);
	c->windows.end = window_of(c, first)->end;
	return first;
}

/* The slot in force is local vCPU `local`'s from now on, or nobody's. */
static __always_inline void enter_window(struct cpu_ctx *c, u32 cpu, u32 local, u64 now)
{
	struct owner owner = {.vcpu = ROTA_NONE, .buffer = c->slot.buffer, .generation = c->slot.generation};
	struct rota_cpu_view *view = windows_view(c, cpu);
	u32 *number = NULL;

	if (!view)
		return;
	if (local != ROTA_NONE)
		number = table_at(c->slot.buffer, view->locals + (u64)local * sizeof(u32), sizeof(u32));
	if (number)
		owner.vcpu = *number;
	c->slot.end = number ? c->windows.until : min_time(c->windows.next, table_next(now));
	if (owner.vcpu == c->slot.vcpu && c->slot.epoch == live.membership_epoch)
		return;
	c->slot.start = now;
	/* What another class has had of its window is lost to the vCPU that is next. */
	if (number && c->turn.other_since)
		c->slot.start = min_time(now, max_time(c->turn.other_since, window_of(c, local)->since));
	c->slot.vcpu = owner.vcpu;
	c->slot.lost_ns = c->windows.lost_ns = 0;
	c->windows.owner = local;
	find_owner(c, cpu, &owner);
}

/*
 * A turn ends that no vCPU could interrupt, and it began when the slot was nobody's. The slot is that of the vCPU which
 * would have been served, so that what it has lost is counted.
 */
static __always_inline void find_loser(struct cpu_ctx *c, u32 cpu, u64 now)
{
	u32 local;

	if ((c->turn.level != ROTA_LEVEL_FLOOR && c->turn.level != ROTA_LEVEL_KERNEL) || !c->slot.in_windows ||
	    c->slot.queue != ROTA_NONE || !is_in_slot(c, now))
		return;
	local = next_in_window(cpu, now, 0, 0);
	if (local == ROTA_NONE)
		return;
	enter_window(c, cpu, local, now);
	c->slot.start = max_time(c->turn.since, window_of(c, local)->since);
}

/*
 * Whether a vCPU has its turn as it has woken. If it has waited since its window began, and that ends first, it would
 * interrupt the other one in any order: the table has room for that.
 */
static __always_inline bool comes_early(const struct window *w, const struct window *before, u64 now)
{
	return is_recent(w, now) && (w->woke > w->start || w->end >= before->end);
}

/*
 * Changes of task that the turn makes, charged to the vCPU that makes them: none among its own threads, and its first
 * as it wakes. `cuts`: the vCPU that had the CPU until now has a thread that would go on; `keeps`: it does, for another
 * vCPU.
 */
static __always_inline void charge_changes(struct cpu_ctx *c, u32 local, bool cuts, bool keeps, u64 switch_ns, u64 now)
{
	struct window *w = window_of(c, local);
	u32 bit = 1U << (local & 31), before = c->turn.local;

	if (local == before)
		return;
	w->early_used = beyond_lines(w, now);
	w->early_since = now;
	if (keeps)
		return;
	if (cuts && before != ROTA_NONE && comes_early(w, window_of(c, before), now) &&
	    (c->windows.rights >> before & 1)) {
		c->windows.interrupted |= 1U << (before & 31);
		pays(w, switch_ns);
	}
	/* It has paid as it woke, or was interrupted by one that has; or nobody is kept from what he is due. */
	if (!((c->windows.woken | c->windows.interrupted) & bit) && (c->windows.rights & ~bit))
		takes_from(w, switch_ns);
	c->windows.interrupted &= ~bit;
}

/* What a vCPU has just paid for the change to it is no part of its turn: the others' windows have no room for both. */
static __always_inline void shorten_turn(struct cpu_ctx *c, u32 local, u64 paid, u64 now)
{
	u64 most = max_time(less(window_of(c, local)->right, paid), ROTA_WINDOW_LEAST_NS);

	if (!paid || !(c->windows.rights >> (local & 31) & 1))
		return;
	c->windows.until = min_time(c->windows.until, now + most);
	c->slot.end = min_time(c->slot.end, now + most);
	c->turn.until_ns = min_time(c->turn.until_ns, now + most);
}

/* A turn of local vCPU `local`, if what waits there may run here. */
static __always_inline bool serve_window(struct run *r, struct cpu_ctx *c, u32 local)
{
	struct rota_cpu_view *view = windows_view(c, r->cpu);
	struct rota_table_vcpu *vcpu = view ? local_here(c, r->cpu, local) : NULL;
	u64 left;

	if (!vcpu)
		return false;
	enter_window(c, r->cpu, local, r->now);
	if (!serve_vcpu(r, vcpu->tenant, vcpu->index, ROTA_LEVEL_OWNER, c->windows.until))
		return false;
	left = window_of(c, local)->left;
	charge_changes(c, local, r->prev_dsq, r->keeps_prev, view->switch_ns, r->now);
	shorten_turn(c, local, less(left, window_of(c, local)->left), r->now);
	c->turn.picked_local = local;
	return true;
}

/*
 * Whether the vCPU that had the CPU until now has a turn still: the CPU was not told to look anew, and no other class
 * had it meanwhile. Then a program that changes threads often has one decision a turn, and not one for each of them.
 */
static __always_inline bool turn_goes_on(const struct cpu_ctx *c, struct task_struct *prev, u64 now)
{
	if (!c->slot.in_windows || c->turn.overtaken || c->windows.asked || c->turn.local == ROTA_NONE ||
	    (c->turn.other_since && (!prev || c->turn.other_since != now)))
		return false;
	return c->turn.level == ROTA_LEVEL_OWNER ? c->turn.local == c->windows.owner && now < c->slot.end
						 : c->turn.local == c->second.local && now < c->second.until;
}

/* The rest of a turn, for whichever thread of its vCPU waits. */
__noinline bool serve_rest(struct run *r __arg_nonnull)
{
	struct cpu_ctx *c = cpu_ctx(r->cpu);
	struct rota_table_vcpu *vcpu = c && r->goes_on ? local_here(c, r->cpu, c->turn.local) : NULL;
	u32 level;

	if (!vcpu || c->turn.local == ROTA_NONE)
		return false;
	level = c->turn.level;
	if (!serve_vcpu(r, vcpu->tenant, vcpu->index, level, level == ROTA_LEVEL_OWNER ? c->slot.end : c->second.until))
		return false;
	c->turn.picked_local = c->turn.local;
	return true;
}

/* None of what waits for a vCPU may run here: it claims nothing for that time. */
static __always_inline void has_no_use(struct cpu_ctx *c, u32 local, u64 now)
{
	struct window *w = window_of(c, local);

	w->rested = now;
	w->seen = 0;
}

/* One turn of a vCPU. What waits for it may be bound to other CPUs: then the next one is asked. */
__noinline bool serve_windows(struct run *r __arg_nonnull)
{
	struct cpu_ctx *c = cpu_ctx(r->cpu);
	u32 tries, tried = 0;

	if (!c)
		return false;
	if (windows_rest(r->cpu, r->now, r->prev_dsq)) {
		enter_window(c, r->cpu, ROTA_NONE, r->now);
		return false;
	}
	bpf_for (tries, 0, ROTA_WINDOW_VCPUS_MAX) {
		u32 local = next_in_window(r->cpu, r->now, r->prev_dsq, tried);

		if (local >= ROTA_WINDOW_VCPUS_MAX)
			break;
		if (serve_window(r, c, local))
			return true;
		tried |= 1U << local;
		has_no_use(c, local, r->now);
	}
	enter_window(c, r->cpu, ROTA_NONE, r->now);
	return false;
}

#endif /* ROTA_WINDOWS_BPF_H */

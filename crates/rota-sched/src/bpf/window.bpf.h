/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Served when it wakes: what a vCPU may claim of the present window, where all vCPUs of a CPU have their slots on that
 * CPU alone.
 *
 * What a vCPU is promised is a budget B in each window [kT, (k+1)T) of its period T. The table shows that the CPU has
 * room for all budgets; in which order they are had is free. So the order is decided as vCPUs wake, and the slot in
 * force is what the CPU has decided last: whose turn it is, and how long (windows.bpf.h).
 *
 *   left    what the vCPU has not had yet of the window's budget: all that it has on this CPU counts
 *   line    a vCPU that has wanted to run since s is due B (t - s) / T by a time t; s is the window's start, or when it
 *           woke within the window
 *   right   what it may claim before others: its line at the window's end less what it has had, but no more than is
 *           left
 *   recent  it has woken less than T ago
 *
 * Every right is had in time. Between two moments t1 and t2 a vCPU claims no more than B (t2 - t1) / T: a whole window
 * is on that line, and so is what is claimed after waking. What it had beyond its line, as others left it, it has had
 * of its next claims. All lines together are no steeper than the CPU. So earliest deadline first serves all of it (Liu
 * and Layland 1973; the line is the wake-up rule of the constant-bandwidth server, Abeni and Buttazzo 1998). A vCPU
 * that wants to run all through a window has its budget there, and one that wakes waits for no longer than T - C.
 *
 * Who interrupts pays. B, the table's window_ns, has room for the changes of task that there are if all vCPUs always
 * want to run. A vCPU that wakes as another one has its turn pays for that decision, and for the change back if it
 * interrupts. A part of its budget may go for that in a window, as long as the next window comes within its bound; then
 * it waits for its turn, however often it wakes.
 * What nobody has claimed it may interrupt then too, and pays no more for that: else a vCPU that sleeps for moments
 * only would have nothing left.
 *
 * What another class, interrupts or the hypervisor take is lost to the vCPUs that would have been served meanwhile: it
 * is taken from their budgets (lost.bpf.h). So no other vCPU's window is shortened by it.
 */
#ifndef ROTA_WINDOW_BPF_H
#define ROTA_WINDOW_BPF_H

#include "kick.bpf.h"
#include "locals.bpf.h"

/* What is to be left of a right beside two changes of task; and less than the second is not worth a turn. */
#define ROTA_WINDOW_GRAIN_NS 20000ULL
#define ROTA_WINDOW_LEAST_NS 2000ULL
#define WINDOW_RATE_SHIFT    20
/* Of several that have woken the one with most of its budget left goes first; the present one as if it had a bonus. */
#define WINDOW_PARTS 1024
#define WINDOW_BONUS 64
/* Such a part of its budget a vCPU may pay for interrupting others in a window; and no more than its bound allows. */
#define WINDOW_CHANGES_PART 8

/* The CPU's part of the table in force, if it serves its vCPUs in windows. */
static __always_inline struct rota_cpu_view *windows_view(const struct cpu_ctx *c, u32 cpu)
{
	struct rota_cpu_view *view = c->slot.buffer < ROTA_NR_BUFFERS ? cpu_view(c->slot.buffer, cpu) : NULL;

	return view && (view->flags & ROTA_CPU_WINDOWS) ? view : NULL;
}

/* What this CPU remembers of local vCPU `local`, masked where the verifier can see it. */
static __always_inline struct window *window_of(struct cpu_ctx *c, u64 local)
{
	barrier_var(local);
	return &c->windows.locals[local & (ROTA_WINDOW_VCPUS_MAX - 1)];
}

/* Another table has come into force, and has other vCPUs. */
static __always_inline void forget_windows(struct cpu_ctx *c, u64 since)
{
	u32 i;

	for (i = 0; i < ROTA_WINDOW_VCPUS_MAX; i++)
		c->windows.locals[i].start = c->windows.locals[i].woke = c->windows.locals[i].seen =
			c->windows.locals[i].rested = 0;
	c->windows.interrupted = c->windows.nr = 0;
	c->windows.lost_since = since;
	c->windows.is_new = true;
	c->windows.lost_ns = 0;
	c->windows.owner = ROTA_NONE;
	c->turn.local = ROTA_NONE;
}

/* Less than this is not worth two changes of task. */
static __always_inline u64 least_claim(const struct rota_cpu_view *view)
{
	return 2 * view->switch_ns + ROTA_WINDOW_GRAIN_NS;
}

static __always_inline u64 less(u64 a, u64 b)
{
	return a > b ? a - b : 0;
}

/* What the vCPU is due by `until`, in the present window, if it has that left. */
static __always_inline u64 due_by(const struct window *w, const struct rota_table_vcpu *vcpu, u64 until)
{
	u64 line = less(until, w->since) * vcpu->window_ns / (vcpu->period_ns ?: 1);

	return min_time(w->left, less(line, w->used));
}

/* A new window, if one has begun. Returns whether. */
static __always_inline bool roll_window(struct window *w, const struct rota_table_vcpu *vcpu, u64 now)
{
	u64 start = now - now % (vcpu->period_ns ?: 1);

	if (start <= w->start)
		return false;
	/* All, of windows through which it has slept. */
	w->spared = start == w->end ? (w->spared + w->left) / 2 : vcpu->window_ns;
	w->start = w->since = w->early_since = start;
	w->end = start + vcpu->period_ns;
	w->left = w->budget = vcpu->window_ns;
	w->changes_left = min_time(vcpu->window_ns / WINDOW_CHANGES_PART,
				   less(vcpu->latency_ns, less(vcpu->period_ns, vcpu->budget_ns)));
	w->rate = ((u64)vcpu->window_ns << WINDOW_RATE_SHIFT) / (vcpu->period_ns ?: 1) + 1;
	w->used = w->early_used = 0;
	return true;
}

/* What the vCPU has had of the window beyond its line at a time: it took what others left. */
static __always_inline u64 beyond_line(const struct window *w, u64 at)
{
	return less(w->used, less(at, w->since) * w->rate >> WINDOW_RATE_SHIFT);
}

/*
 * The vCPU wants to run, and has done so since `from` at least without a pause. If it has slept before that, its line
 * begins anew. What it has had beyond the former one remains: else it could have the same again and again.
 */
static __always_inline void wants_since(struct window *w, u64 from, u64 now)
{
	if (from > w->seen) {
		w->used = beyond_line(w, from);
		w->since = max_time(from, w->start);
	}
	w->seen = now;
}

static __always_inline bool is_recent(const struct window *w, u64 now)
{
	return w->woke + (w->end - w->start) > now && w->changes_left;
}

/* Which part of its budget the vCPU has left, if it is recent; else 0. */
static __always_inline u64 part_left(const struct window *w, u64 now)
{
	return is_recent(w, now) ? (w->left + 2 * w->spared) * WINDOW_PARTS / (w->budget ?: 1) : 0;
}

static __always_inline void takes_from(struct window *w, u64 used)
{
	w->used += used;
	w->early_used += used;
	w->left = less(w->left, used);
}

/*
 * What was lost of the slot in force is of the budget of the vCPU whose slot it is, as if it had had it. So the others
 * have theirs, whatever another class takes.
 */
static __always_inline void charge_lost(struct cpu_ctx *c)
{
	if (c->windows.owner == ROTA_NONE)
		return;
	takes_from(window_of(c, c->windows.owner), c->windows.lost_ns);
	c->windows.lost_ns = 0;
}

/* Of `among` with something left the vCPU whose window ends first; ROTA_NONE. */
static __always_inline u32 first_to_end(struct cpu_ctx *c, u32 among)
{
	u32 i, found = ROTA_NONE;
	u64 first = ROTA_NEVER;

	bpf_for (i, 0, ROTA_WINDOW_VCPUS_MAX) {
		const struct window *w = window_of(c, i);

		if (!(among >> i & 1) || w->left < ROTA_WINDOW_LEAST_NS)
			continue;
		if (w->end < first || (w->end == first && i == c->turn.local)) {
			first = w->end;
			found = i;
		}
	}
	return found;
}

/* A vCPU is charged what its wake-up takes of others. It may do so for a part of its budget. */
static __always_inline void pays(struct window *w, u64 ns)
{
	takes_from(w, ns);
	w->changes_left = less(w->changes_left, ns);
}

/* A turn of local vCPU `local` is settled up to now: whatever its level, it is of the window's budget. */
__noinline int window_charge(u32 cpu, u32 local, u64 since, u64 now)
{
	struct cpu_ctx *c = cpu_ctx(cpu);
	struct rota_table_vcpu *vcpu = c && windows_view(c, cpu) ? local_here(c, cpu, local) : NULL;
	struct window *w;

	if (!vcpu)
		return 0;
	charge_lost(c);
	w = window_of(c, local);
	if (roll_window(w, vcpu, now))
		since = max_time(since, w->start);
	takes_from(w, less(now, since));
	w->seen = now;
	return 0;
}

/* The queue of the vCPU's own threads: a VM's monitor has another one, whose threads may use the vCPU's slots too. */
static __always_inline struct queue_ctx *own_queue(const struct rota_table_vcpu *vcpu, const struct rota_tenant *tenant)
{
	return queue_ctx(tenant->first_queue + (tenant->kind == ROTA_KIND_VM ? 1 + vcpu->index : 0));
}

/* When the vCPU woke, if it waits since `from`: perhaps later, if its monitor waited already. */
static __always_inline u64 vcpu_woke(const struct rota_table_vcpu *vcpu, const struct rota_tenant *tenant, u64 from)
{
	struct queue_ctx *own = own_queue(vcpu, tenant);

	return own && own->waiting ? max_time(from, own->waits_from) : from;
}

/* Whether the loader has sent a thread to the vCPU's own queue, where it waits. It is not counted before it runs. */
static __always_inline bool was_sent(const struct rota_table_vcpu *vcpu, const struct rota_tenant *tenant)
{
	return tenant->kind == ROTA_KIND_VM && nr_rehomed &&
	       nr_waiting(DSQ_QUEUE(tenant->first_queue + 1 + vcpu->index)) > 0;
}

/*
 * Since when a thread of the vCPU waits without a pause. If none has woken since the CPU saw the vCPU rest, it may have
 * come from another CPU: now, as far as is known. If the CPU has yet to look, as a table has come into force, it waited
 * before that: one that never sleeps has its budget of the first window too.
 */
static __always_inline u64 vcpu_waits_from(const struct window *w, const struct rota_table_vcpu *vcpu,
					   const struct rota_tenant *tenant, u64 now)
{
	struct queue_ctx *service = queue_ctx(tenant->first_queue), *own = own_queue(vcpu, tenant);
	u64 from = ROTA_NEVER;

	if (own && own->waiting)
		from = own->waits_from;
	else if (was_sent(vcpu, tenant))
		from = 0; /* before its monitor may have woken */
	if (service && service->waiting)
		from = min_time(from, service->waits_from);
	if (from > w->rested && from != ROTA_NEVER)
		return from;
	return w->seen >= w->rested || !w->rested ? 0 : now;
}

/* Whether a vCPU that wakes may go before the present one: more of its budget is left, or its window ends sooner. */
static __always_inline bool goes_first(const struct cpu_ctx *c, const struct rota_cpu_view *view,
				       const struct rota_table_vcpu *vcpu, const struct window *w, u64 now)
{
	u64 least = least_claim(view);

	if (!w->changes_left)
		return false;
	return (w->left >= least && part_left(w, now) > c->windows.part) ||
	       (w->end < c->windows.end && due_by(w, vcpu, w->end) >= least);
}

/*
 * Whether one that has woken too often to go before the present one would not have what it is due, if it waited for the
 * end of that turn: nobody knew as the turn began that it would wake.
 */
static __always_inline bool comes_too_late(const struct cpu_ctx *c, const struct rota_cpu_view *view,
					   const struct rota_table_vcpu *vcpu, const struct window *w)
{
	u64 due = due_by(w, vcpu, w->end);

	return !w->changes_left && w->end < c->windows.end && due >= least_claim(view) &&
	       c->turn.until_ns > w->end - due;
}

/* The number of vCPU `index` of the tenant among the locals of CPU `cpu`; of any of its vCPUs if that is ROTA_NONE. */
__noinline u32 local_of(u32 cpu, u32 tenant_id, u32 index)
{
	struct cpu_ctx *c = cpu_ctx(cpu);
	struct rota_cpu_view *view = c ? windows_view(c, cpu) : NULL;
	u32 i;

	bpf_for (i, 0, ROTA_WINDOW_VCPUS_MAX) {
		struct rota_table_vcpu *vcpu;

		if (!view || i >= view->nr_locals)
			break;
		vcpu = local_here(c, cpu, i);
		if (vcpu && vcpu->tenant == tenant_id && (index == ROTA_NONE || vcpu->index == index))
			return i;
	}
	return ROTA_NONE;
}

/*
 * Until when CPU `cpu` may serve vCPU `index` of the tenant, any of its vCPUs if that is ROTA_NONE, of whose threads
 * one waits now, before what it serves at present; 0: it would not. A hint: the CPU itself looks at what others are
 * due.
 */
__noinline u64 window_serves(u32 cpu, u32 tenant_id, u32 index, u64 now)
{
	struct rota_tenant *tenant = tenant_of(tenant_id);
	struct cpu_ctx *c = cpu_ctx(cpu);
	struct rota_cpu_view *view = c ? windows_view(c, cpu) : NULL;
	struct rota_table_vcpu *vcpu;
	struct window w;
	u32 local;

	if (!tenant || !view || c->turn.level > ROTA_LEVEL_OWNER)
		return 0;
	/* Its threads are one another's equals, and one that was just stopped for another is no news. */
	if (c->turn.level == ROTA_LEVEL_OWNER && c->slot.tenant == tenant_id && index == ROTA_NONE)
		return 0;
	local = local_of(cpu, tenant_id, index);
	vcpu = local == ROTA_NONE ? NULL : local_here(c, cpu, local);
	if (!vcpu || (local == c->turn.local && c->turn.level == ROTA_LEVEL_OWNER))
		return 0;
	w = *window_of(c, local);
	roll_window(&w, vcpu, now);
	wants_since(&w, vcpu_waits_from(&w, vcpu, tenant, now), now);
	w.woke = now;
	if (c->turn.level < ROTA_LEVEL_OWNER ? w.left >= ROTA_WINDOW_LEAST_NS : goes_first(c, view, vcpu, &w, now))
		return w.end;
	c->windows.asked = 1;
	if (comes_too_late(c, view, vcpu, &w))
		decide_anew(cpu);
	return 0;
}

#endif /* ROTA_WINDOW_BPF_H */

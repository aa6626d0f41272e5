/* SPDX-License-Identifier: GPL-2.0-only */
/* Runs of several actors at once, all of them: wherever one may look at what others write, another may go on. */
#ifndef ROTA_EXPLORE_H
#define ROTA_EXPLORE_H

#include <stdbool.h>

#define ACTORS_MAX 6

/* An actor's work, begun anew in each run. */
typedef void (*actor_work)(int actor);

/* Another actor may go on here. */
void yield_to_others(void);
/* The actor goes on only once `ready` says so. */
void wait_until(bool (*ready)(int actor, void *argument), void *argument);
/* Which actor this is; -1 outside of a run. */
int this_actor(void);
/* Makes the next run; nothing is left if it returns false. It ends when no actor is ready. */
bool next_run(const actor_work *work, int count, int preemptions);
/* Forgets what was explored. */
void explore_anew(void);
/* The choices that led here, for a failure's message. */
void show_choices(void);
unsigned long runs_so_far(void);

#endif /* ROTA_EXPLORE_H */

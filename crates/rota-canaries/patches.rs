//! Mistakes that are planted into copies of the schedulers, to see that they are found. `build.rs` makes the copies,
//! and fails where a text is not there once.

/// A mistake: in one of the scheduler's files a text becomes another.
pub struct Patch {
    /// In a word, of which there are no two; what the copy's function `native_code` is called begins with it.
    pub name: &'static str,
    /// What is wrong.
    pub about: &'static str,
    /// The file.
    pub file: &'static str,
    /// What is there.
    pub text: &'static str,
    /// What is there instead.
    pub spoilt: &'static str,
}

/// In the host's scheduler.
pub static PATCHES: [Patch; 11] = [
    Patch {
        name: "slice",
        about: "off by one in the slice index: each look-up reads the next slice",
        file: "table.bpf.h",
        text: "(u64)(offset / view->slice_ns)",
        spoilt: "(u64)(offset / view->slice_ns + 1)",
    },
    Patch {
        name: "wake",
        about: "a lost wake-up: a CPU that runs something lower is not told of a thread that wakes",
        file: "tell.bpf.h",
        text: "\t\tovertake(c, cpu);\n\t} else if (",
        spoilt: "\t\tc->turn.overtaken = true;\n\t} else if (",
    },
    Patch {
        name: "budget",
        about: "the floor's grants end after two seconds",
        file: "floor.bpf.h",
        text: "\tif (r->now - line->served > wait)\n",
        spoilt: "\tif (c->run.now - line->served > wait && r->now < ROTA_FLOOR_WAIT_NS * 2)\n",
    },
    Patch {
        name: "count",
        about: "a thread that is put into a dispatch queue is not counted there",
        file: "line.bpf.h",
        text: "\tt->waits_in = dsq;\n\tcount_waiting(dsq, 1);\n",
        spoilt: "",
    },
    Patch {
        name: "weight",
        about: "all tenants with a weight have the same",
        file: "shares.bpf.h",
        text: "\treturn vtime_of(ns, tenant->weight ?: ROTA_WEIGHT_ONE);\n",
        spoilt: "\t(void)tenant;\n\treturn ns;\n",
    },
    Patch {
        name: "late",
        about: "a vCPU that wakes late in its window has all that is left of its budget",
        file: "window.bpf.h",
        text: "\treturn min_time(w->left, less(line, w->used));\n",
        spoilt: "\t(void)line;\n\treturn w->left;\n",
    },
    Patch {
        name: "outside",
        about: "what a vCPU has of its window while nobody has a right is not counted",
        file: "window.bpf.h",
        text: "\ttakes_from(w, less(now, since));\n\tw->seen",
        spoilt: "\tif (c->windows.rights)\n\t\ttakes_from(w, less(now, since));\n\tw->seen",
    },
    Patch {
        name: "swap",
        about: "a vCPU that has woken goes before others as if these claimed nothing",
        file: "windows.bpf.h",
        text: ": claims_by(c, j, until, now);\n",
        spoilt: ": 0;\n",
    },
    Patch {
        name: "line",
        about: "a vCPU that has woken goes before others for longer than its line has it",
        file: "windows.bpf.h",
        text: "less(less(until, now) * w->rate >> WINDOW_RATE_SHIFT, beyond_lines(w, now)));\n",
        spoilt: "less(until, now));\n",
    },
    Patch {
        name: "interrupter",
        about: "changes of task are not charged to the vCPU that interrupts another one",
        file: "windows.bpf.h",
        text: "\t\ttakes_from(w, switch_ns);\n",
        spoilt: "\t\t(void)switch_ns;\n",
    },
    Patch {
        name: "wall",
        about: "a CPU on which a vCPU is that migrates serves all of them in windows",
        file: "window.bpf.h",
        text: "\treturn view && (view->flags & ROTA_CPU_WINDOWS) ? view : NULL;\n}\n",
        spoilt: "\treturn view && view->nr_locals ? view : NULL;\n}\n#define window_ns budget_ns\n",
    },
];

/// In guests' scheduler.
pub static GUEST_PATCHES: [Patch; 9] = [
    Patch {
        name: "called",
        about: "a CPU whose slot begins does not call its thread home",
        file: "guest.bpf.c",
        text: "\t\tfetch(cpu);\n\t\tcall_home(cpu);\n",
        spoilt: "\t\tif (!fetch(cpu) && !v)\n\t\t\tcall_home(cpu);\n",
    },
    Patch {
        name: "told",
        about: "a thread at home waits for one that is a guest there",
        file: "guest.bpf.c",
        text: "\tif (first) {\n",
        spoilt: "\tif (first && !p) {\n",
    },
    Patch {
        name: "fetched",
        about: "a CPU without threads fetches none from the longest queue",
        file: "guest.bpf.c",
        text: "\treturn longest >= 0 && ",
        spoilt: "\treturn longest < 0 && ",
    },
    Patch {
        name: "strange",
        about: "a CPU fetches those as its own that are at home elsewhere",
        file: "guest.bpf.c",
        text: "t->home != (s32)cpu ||",
        spoilt: "t->home == (s32)cpu ||",
    },
    Patch {
        name: "stays",
        about: "those that wait do not leave a CPU that stops",
        file: "guest.bpf.c",
        text: "\tif (stops)\n\t\tleave(cpu, v);\n",
        spoilt: "\tif (stops && !v)\n\t\tleave(cpu, v);\n",
    },
    Patch {
        name: "spun",
        about: "no thread is seen to wait busily",
        file: "spin.bpf.h",
        text: "\tif (t->repeats >= SPIN_REPEATS)\n",
        spoilt: "\tif (t->repeats > SPIN_LOOKS)\n",
    },
    Patch {
        name: "alone",
        about: "a thread that waits busily does not give way to one that waits elsewhere",
        file: "guest.bpf.c",
        text: "t->gives_way && is_there(cpu) &&",
        spoilt: "t->gives_way && !is_there(cpu) &&",
    },
    Patch {
        name: "wrong",
        about: "a timetable is believed although CPUs are stopped in their slots",
        file: "look.bpf.h",
        text: "\tif (++v->broken < BROKEN_MAX)\n",
        spoilt: "\tif (v->broken < BROKEN_MAX)\n",
    },
    Patch {
        name: "stolen",
        about: "CPUs of which much is stolen are not avoided",
        file: "vcpu.bpf.h",
        text: "> STOLEN_MUCH ? 0",
        spoilt: "> 1000 * STOLEN_MUCH ? 0",
    },
];

//! What things cost: the parameters of the model, each with the source of its default.

/// Times in ns. A run may set each; what the papers and our benchmarks do not say is marked as assumed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Costs {
    /// From one task to another on a CPU, before the second does anything of its own. 1.5 us per switch on a Xeon
    /// E5-2695: Huang et al., *Towards exploiting CPU elasticity via efficient thread oversubscription*, HPDC 2021,
    /// section 2.3.
    pub switch_ns: u64,
    /// More of it where the task comes from another CPU: run queue locks and cold private caches. Assumed.
    pub migration_ns: u64,
    /// What a task does again after another ran on its CPU, or after it has moved, for each KiB that it works on:
    /// refilling caches. 1 ms for the 64 MiB that each of two threads reads in turn (same paper, figure 4).
    pub refill_ns_per_kib: u64,
    /// From a request to another CPU to decide anew until it does: an inter-processor interrupt. Assumed.
    pub kick_ns: u64,
    /// The same for a CPU that idles and has to wake up first. Assumed: a shallow sleep state.
    pub idle_exit_ns: u64,
    /// Time that an interrupt takes from the running task: a tick, a timer, a kick. Assumed.
    pub interrupt_ns: u64,
    /// A timer fires up to this much late, uniformly. Assumed: a soft interrupt behind other work.
    pub timer_slack_ns: u64,
    /// Between ticks of a busy CPU: 250 a second, as distributions' kernels are built.
    pub tick_ns: u64,
    /// A virtual machine's exit to its monitor and back. Assumed; used by the programs that stand for VMs.
    pub vm_exit_ns: u64,
}

impl Default for Costs {
    fn default() -> Costs {
        Costs {
            switch_ns: 1_500,
            migration_ns: 1_000,
            refill_ns_per_kib: 16,
            kick_ns: 1_000,
            idle_exit_ns: 2_000,
            interrupt_ns: 500,
            timer_slack_ns: 2_000,
            tick_ns: 4_000_000,
            vm_exit_ns: 1_200,
        }
    }
}

impl Costs {
    /// The longest that one decision of a scheduler can take to have its effect: a late timer, its interrupt, a kick to
    /// a CPU that idles, that interrupt, and the change of tasks.
    pub fn late_ns(&self) -> u64 {
        self.timer_slack_ns + 2 * self.interrupt_ns + self.kick_ns + self.idle_exit_ns + self.switch_ns
    }

    /// Nothing costs anything, but that one thing happens after another: for tests of rules. A kick takes 1 ns, so that
    /// a CPU that keeps kicking itself does not stop the time.
    pub const FREE: Costs = Costs {
        switch_ns: 0,
        migration_ns: 0,
        refill_ns_per_kib: 0,
        kick_ns: 1,
        idle_exit_ns: 0,
        interrupt_ns: 0,
        timer_slack_ns: 0,
        tick_ns: 4_000_000,
        vm_exit_ns: 0,
    };
}

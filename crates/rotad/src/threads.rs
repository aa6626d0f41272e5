//! A tenant's threads one by one, for `rota profile`. The scheduler keeps the account of each thread in its storage.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use rota_host::{find::threads::threads_of, tree};
use rota_model::TenantId;
use rota_rules::profile::ThreadStatus;
use rota_rules::status::TenantStatus;
use rota_sched::{BPF_FS, Thread, Threads};

/// A tenant's threads, and what each had done when they were first looked at.
pub struct Looks {
    threads: Threads,
    tenant: TenantId,
    cgroup: PathBuf,
    first: BTreeMap<i32, Thread>,
}

impl Looks {
    /// Looks at the tenant's threads.
    ///
    /// # Errors
    ///
    /// Why they are not told one by one, for the operator.
    pub fn begin(tenant: &TenantStatus) -> Result<Looks, String> {
        let open = || {
            let cgroup = tenant.cgroup.as_deref().context("the tenant has no cgroup of its own")?;
            let tenant = tenant.id.context("the tenant is not here")?;
            let cgroup = tree::mount_point()?.join(cgroup);
            let mut looks =
                Looks { threads: Threads::open(Path::new(BPF_FS))?, tenant, cgroup, first: BTreeMap::new() };
            looks.first = looks.now()?;
            anyhow::Ok(looks)
        };
        open().map_err(|error| format!("{error:#}"))
    }

    /// What each thread has done since the first look. Threads with more to do come first. A thread that has ended is
    /// left out.
    ///
    /// # Errors
    ///
    /// As [`Looks::begin`].
    pub fn end(&self) -> Result<Vec<ThreadStatus>, String> {
        let now = self.now().map_err(|error| format!("{error:#}"))?;
        let mut told: Vec<ThreadStatus> = now
            .iter()
            .map(|(tid, thread)| ThreadStatus {
                tid: *tid,
                name: name_of(*tid),
                spent_ns: since(thread, self.first.get(tid)).into(),
            })
            .collect();
        let busy = |thread: &ThreadStatus| thread.spent_ns.running + thread.spent_ns.waiting;
        told.sort_by_key(|thread| (std::cmp::Reverse(busy(thread)), thread.tid));
        Ok(told)
    }

    /// The tenant's own ones: a cgroup below its own may be another tenant's.
    fn now(&self) -> anyhow::Result<BTreeMap<i32, Thread>> {
        let mut found = BTreeMap::new();
        for tid in threads_of(&self.cgroup) {
            found.extend(self.threads.read(tid)?.map(|thread| (tid, thread)));
        }
        found.retain(|_, thread| thread.tenant == self.tenant);
        Ok(found)
    }
}

/// What a thread did after `before`. Its account has begun anew if it has gone to another queue.
fn since(now: &Thread, before: Option<&Thread>) -> [u64; 7] {
    let before = before.filter(|before| before.queue == now.queue).map_or([0; 7], |before| before.spent_ns);
    std::array::from_fn(|spent| now.spent_ns[spent].saturating_sub(before[spent]))
}

fn name_of(tid: i32) -> String {
    let read = fs::read(format!("/proc/{tid}/comm")).unwrap_or_default();
    String::from_utf8_lossy(&read).trim_end_matches('\n').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_begins_anew_in_another_queue() {
        let before = Thread { tenant: 1, queue: 4, spent_ns: [5, 7, 0, 0, 0, 0, 0] };
        let now = Thread { spent_ns: [6, 9, 1, 0, 0, 0, 0], ..before.clone() };
        assert_eq!(since(&now, Some(&before)), [1, 2, 1, 0, 0, 0, 0]);
        assert_eq!(since(&Thread { queue: 5, ..now.clone() }, Some(&before)), now.spent_ns);
        assert_eq!(since(&now, None), now.spent_ns, "it came meanwhile");
    }

    #[test]
    fn a_thread_is_called_what_it_calls_itself() {
        let own = std::thread::Builder::new().name("db-writer".to_owned());
        let name = own.spawn(|| name_of(nix::unistd::gettid().as_raw())).unwrap().join().unwrap();
        assert_eq!(name, "db-writer");
    }
}

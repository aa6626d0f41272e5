//! A tenant that does all it can to cgroups, names, threads and affinities: what a user with a delegated cgroup may do.
//! It asks for timetables, too, as if it were a VM.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use anyhow::{Context, Result};
use nix::libc::VMADDR_CID_HOST;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::prctl;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, VsockAddr, connect, setsockopt, socket, sockopt};
use nix::sys::time::TimeVal;
use nix::unistd::{Pid, setgid, setuid};
use rota_table::VSOCK_PORT;
use serde::{Deserialize, Serialize};

use super::clock::now_ns;

/// What it may have at most, and for how long it goes on.
#[derive(Clone, Debug, clap::Args)]
pub struct Plan {
    /// The delegated cgroup
    pub cgroup: PathBuf,
    /// Cgroups below it, at most
    #[arg(long)]
    pub cgroups: usize,
    /// Threads at once, at most
    #[arg(long)]
    pub threads: u64,
    /// Processes at once, at most
    #[arg(long, default_value_t = 8)]
    pub processes: usize,
    /// Of chance
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Until this time of CLOCK_MONOTONIC, in ns
    #[arg(long)]
    pub end_ns: u64,
}

/// How often it has done what.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {
    /// Cgroups made, and how many there were at most.
    pub made: u64,
    /// See `made`.
    pub cgroups_most: usize,
    /// Cgroups removed.
    pub removed: u64,
    /// Processes moved to another cgroup.
    pub moved: u64,
    /// Processes started, by names of others' monitors.
    pub forked: u64,
    /// Threads started, by names of vCPUs.
    pub threads: u64,
    /// Affinities changed.
    pub bound: u64,
    /// Connections to where VMs are sent their timetables.
    pub asked: u64,
    /// Bytes that were sent there.
    pub told: u64,
    /// What the kernel refused.
    pub refused: u64,
}

/// Who it runs as.
const USER: u32 = 1000;

/// It tells what it has done after so many actions.
const TOLD_EVERY: u32 = 20;

/// Kinds of actions.
const KINDS: u64 = 17;

/// A thread that the adversary starts with lasts for an hour.
const FILLED_MS: u64 = 3_600_000;

/// Names that mean something to who looks for tenants.
const NAMES: [&str; 6] = [
    "0123456789ab",
    "docker-0123456789ab0123456789ab0123456789ab0123456789ab0123456789ab0123.scope",
    "machine-qemu\\x2d1\\x2dweb.scope",
    "web.service",
    "a\u{1b}[31mb\rc",
    "libvirt",
];

/// Numbers that look random: xorshift.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

struct Adversary {
    plan: Plan,
    random: Random,
    /// Made and not removed, those inside of others after those.
    cgroups: Vec<PathBuf>,
    children: Vec<Child>,
    threads: Arc<AtomicU64>,
    done: Done,
}

/// Takes a user's rights, does what it can until its time is over, and tells now and then how often it has done what.
/// Then it kills the processes that it has started. Its threads end with its own process, and its cgroups stay.
///
/// # Errors
///
/// The rights cannot be taken.
pub fn run(plan: Plan, mut tell: impl FnMut(&Done)) -> Result<()> {
    setgid(USER.into()).and_then(|()| setuid(USER.into())).context("becoming a user")?;
    let random = Random(plan.seed.max(1));
    let cgroups = vec![plan.cgroup.clone()];
    let (threads, children, done) = Default::default();
    let mut adversary = Adversary { plan, random, cgroups, children, threads, done };
    adversary.fill(&mut tell);
    // A slow machine gets to few actions: so each kind comes before chance.
    (0..KINDS).for_each(|kind| adversary.act(kind));
    while now_ns() < adversary.plan.end_ns {
        tell(&adversary.done);
        for _ in 0..TOLD_EVERY {
            let kind = adversary.random.below(KINDS);
            adversary.act(kind);
        }
    }
    tell(&adversary.done);
    for child in &mut adversary.children {
        let _ = child.kill();
    }
    Ok(())
}

impl Adversary {
    /// Makes nine tenths of the cgroups and threads that it may have: cgroups side by side, and threads that sleep.
    fn fill(&mut self, tell: &mut impl FnMut(&Done)) {
        for index in 0..self.plan.cgroups * 9 / 10 {
            let path = self.plan.cgroup.join(format!("filled-{index}"));
            if now_ns() >= self.plan.end_ns || fs::create_dir(&path).is_err() {
                self.done.refused += 1;
                break;
            }
            self.cgroups.push(path);
            self.done.made += 1;
        }
        self.done.cgroups_most = self.cgroups.len();
        let nap_ms = self.plan.threads.max(1_000); // so that no more than one wakes in a ms
        for index in 0..self.plan.threads * 9 / 10 {
            if index % u64::from(TOLD_EVERY) == 0 {
                tell(&self.done);
            }
            if now_ns() >= self.plan.end_ns {
                break;
            }
            self.done.refused += u64::from(self.start(index, FILLED_MS, Some(nap_ms)).is_err());
        }
    }

    /// An action of a kind below `KINDS`: what is likelier has more kinds.
    fn act(&mut self, kind: u64) {
        let outcome = match kind {
            0..6 => (0..64).try_for_each(|_| self.make()),
            6..9 => (0..16).try_for_each(|_| self.remove()),
            9..11 => self.relocate(),
            11 => self.fork(),
            12..15 => (0..16).try_for_each(|_| self.thread()),
            15 => self.bind(),
            _ => (0..4).try_for_each(|_| self.ask()),
        };
        self.done.refused += u64::from(outcome.is_err());
    }

    fn some_cgroup(&mut self) -> PathBuf {
        let place = self.random.below(self.cgroups.len() as u64) as usize;
        self.cgroups[place].clone()
    }

    /// Below the one made last, now and then for as deep as a path can be; else below any.
    fn make(&mut self) -> io::Result<()> {
        if self.cgroups.len() > self.plan.cgroups {
            return Ok(());
        }
        let parent = match self.random.below(4) {
            0 => self.cgroups.last().expect("there is the delegated one").clone(),
            _ => self.some_cgroup(),
        };
        let name = match self.random.below(3) {
            0 => NAMES[self.random.below(NAMES.len() as u64) as usize].to_owned(),
            1 => format!("{:0200}", self.random.below(1000)),
            _ => format!("c{}", self.done.made),
        };
        let path = parent.join(name);
        fs::create_dir(&path)?;
        self.cgroups.push(path);
        self.done.made += 1;
        self.done.cgroups_most = self.done.cgroups_most.max(self.cgroups.len());
        Ok(())
    }

    fn remove(&mut self) -> io::Result<()> {
        // The later, the fewer others are inside.
        let last = self.cgroups.len() as u64 - 1;
        if last == 0 || self.random.below(4) > 0 && last < self.plan.cgroups as u64 {
            return Ok(());
        }
        let place = (last - self.random.below(last.min(64))) as usize;
        fs::remove_dir(&self.cgroups[place])?;
        self.cgroups.remove(place);
        self.done.removed += 1;
        Ok(())
    }

    /// Itself, or a child.
    fn relocate(&mut self) -> io::Result<()> {
        let to = self.some_cgroup();
        let child = self.random.below(self.children.len() as u64 + 1) as usize;
        let pid = self.children.get(child).map_or(0, Child::id);
        fs::write(to.join("cgroup.procs"), pid.to_string())?;
        self.done.moved += 1;
        Ok(())
    }

    /// A child that is called like a VM's monitor.
    fn fork(&mut self) -> io::Result<()> {
        if self.children.len() >= self.plan.processes {
            let mut gone = self.children.swap_remove(self.random.below(self.plan.processes as u64) as usize);
            // It never ends by itself, and so is there to be killed.
            let _ = gone.kill();
            gone.wait()?;
        }
        let script = "exec -a qemu-system-x86_64 sh -c 'while :; do sleep 1; done' -name web";
        self.children.push(Command::new("sh").args(["-c", script]).spawn()?);
        self.done.forked += 1;
        Ok(())
    }

    /// One that computes for a moment or sleeps, called like a vCPU.
    fn thread(&mut self) -> io::Result<()> {
        if self.threads.load(Ordering::Relaxed) >= self.plan.threads {
            return Ok(());
        }
        let (ms, computes) = (self.random.below(2000), self.random.below(8) == 0);
        let index = self.random.below(4);
        self.start(index, ms, (!computes).then_some(5))
    }

    /// A thread that lasts so many ms. It sleeps for so many at a time, or computes.
    fn start(&mut self, index: u64, ms: u64, nap_ms: Option<u64>) -> io::Result<()> {
        let threads = self.threads.clone();
        let body = move || {
            // The name is the kernel's to refuse.
            let _ = prctl::set_name(&std::ffi::CString::new(format!("CPU {index}/KVM")).unwrap_or_default());
            let end_ns = now_ns() + ms * 1_000_000;
            while now_ns() < end_ns {
                if let Some(nap_ms) = nap_ms {
                    thread::sleep(std::time::Duration::from_millis(nap_ms));
                }
            }
            threads.fetch_sub(1, Ordering::Relaxed);
        };
        self.threads.fetch_add(1, Ordering::Relaxed);
        let started = thread::Builder::new().stack_size(64 << 10).spawn(body);
        if started.is_err() {
            self.threads.fetch_sub(1, Ordering::Relaxed);
        }
        self.done.threads += 1;
        started.map(drop)
    }

    fn bind(&mut self) -> io::Result<()> {
        let mut cpus = CpuSet::new();
        for cpu in 0..thread::available_parallelism().map_or(1, usize::from) {
            if self.random.below(2) == 0 {
                cpus.set(cpu)?;
            }
        }
        let child = self.random.below(self.children.len() as u64 + 1) as usize;
        let pid = self.children.get(child).map_or(0, Child::id);
        sched_setaffinity(Pid::from_raw(pid as i32), &cpus)?;
        self.done.bound += 1;
        Ok(())
    }

    fn ask(&mut self) -> io::Result<()> {
        let asks = socket(AddressFamily::Vsock, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
        setsockopt(&asks, sockopt::ReceiveTimeout, &TimeVal::new(1, 0))?;
        connect(asks.as_raw_fd(), &VsockAddr::new(VMADDR_CID_HOST, VSOCK_PORT))?;
        self.done.asked += 1;
        self.done.told += File::from(asks).read(&mut [0; 64])? as u64;
        Ok(())
    }
}

//! A guest in which `rota up` runs, and what it leaves.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rota_lab::scenario::result::Gaps;
use rota_lab::{Clock, Image, Kernel, Outcome, Vm, tell_wait};
use rota_rules::status::{Status, TenantStatus};
use serde::de::DeserializeOwned;

/// The newest kernel, and an older one that is still in wide use.
pub const NEWEST: &str = "7";
/// See [`NEWEST`].
pub const OLDER: &str = "6.18";

/// For a guest that hangs; the longest takes a minute and a half, and ten times that on a loaded machine.
const TIMEOUT: Duration = Duration::from_secs(900);

/// The guest's part of a test: its name and its text.
pub struct Script(pub &'static str, pub &'static str);

/// The guest's part of the tests in the folder `guest`, by name.
macro_rules! script {
    ($name:literal) => {
        $crate::guest::Script($name, include_str!(concat!("guest/", $name)))
    };
}
pub(crate) use script;

/// A machine to be booted.
pub struct Guest {
    kernel: &'static str,
    cpus: u32,
    clock: Clock,
    halvings: u32,
    timeout: Duration,
    memory_mib: u32,
    own: Vec<&'static str>,
    programs: Vec<&'static str>,
    modules: Vec<&'static str>,
    nested: bool,
    files: Vec<(&'static str, String)>,
    built: Vec<(&'static str, PathBuf)>,
}

impl Guest {
    /// One CPU whose clock counts instructions: nothing but the guest itself takes time from the guest, so promises can
    /// be asserted exactly.
    pub fn exact(kernel: &'static str) -> Guest {
        Guest {
            kernel,
            cpus: 1,
            clock: Clock::Instructions,
            halvings: 1,
            timeout: TIMEOUT,
            memory_mib: 1024,
            own: vec!["rota", "rota-probe"],
            programs: vec![],
            modules: vec![],
            nested: false,
            files: vec![],
            built: vec![],
        }
    }

    /// Several CPUs whose clock counts instructions. They take turns, each as fast as if it were alone: nothing else
    /// takes time from the guest, but an interrupt may find its CPU waiting for its turn.
    pub fn exact_on(kernel: &'static str, cpus: u32) -> Guest {
        Guest { cpus, ..Guest::exact(kernel) }
    }

    /// Two CPUs that run at the same time, in real time. The machine below takes from it what it likes and runs another
    /// guest beside it: nothing can be said of how long anything takes.
    pub fn parallel(kernel: &'static str) -> Guest {
        Guest { cpus: 2, clock: Clock::Real, ..Guest::exact(kernel) }
    }

    /// At another speed: an instruction in a nanosecond, halved so many times; once without this. A minute of a guest
    /// that is half as fast is emulated in half the time.
    pub fn halved(mut self, times: u32) -> Guest {
        self.halvings = times;
        self
    }

    /// For a script that takes so much longer than others.
    pub fn longer(mut self, by: Duration) -> Guest {
        self.timeout += by;
        self
    }

    /// With so much memory, 1 GiB without this.
    pub fn memory(mut self, mib: u32) -> Guest {
        self.memory_mib = mib;
        self
    }

    /// With another program of the lab's.
    pub fn own(mut self, name: &'static str) -> Guest {
        self.own.push(name);
        self
    }

    /// With a program of this machine, too.
    pub fn program(mut self, name: &'static str) -> Guest {
        self.programs.push(name);
        self
    }

    /// With a program that a test has built, by that name.
    pub fn built(mut self, name: &'static str, program: PathBuf) -> Guest {
        self.built.push((name, program));
        self
    }

    /// With a module of the kernel's.
    pub fn module(mut self, name: &'static str) -> Guest {
        self.modules.push(name);
        self
    }

    /// With KVM, so that it runs virtual machines itself.
    pub fn nested(mut self) -> Guest {
        self.nested = true;
        self.module("kvm-amd")
    }

    /// With a file.
    pub fn file(mut self, path: &'static str, text: &str) -> Guest {
        self.files.push((path, text.to_owned()));
        self
    }

    /// Boots it with `config` as Rota's configuration, and runs `script` to its end.
    pub fn run(&self, config: &str, script: &Script) -> Results {
        let kernel = Kernel::fetch(self.kernel, &mut |message| println!("{message}")).unwrap();
        let mut image = Image::new(&kernel).unwrap();
        for name in &self.own {
            let file = name.rsplit('/').next().unwrap_or(name);
            image.own_program(&own(name), &format!("/usr/bin/{file}")).unwrap();
        }
        for name in &self.programs {
            image.program_on_path(name).unwrap();
        }
        for (name, program) in &self.built {
            image.program(program, &format!("/usr/bin/{name}")).unwrap();
        }
        for name in &self.modules {
            image.module(name).unwrap();
        }
        image.bytes("/etc/rota/rota.toml", 0o644, config);
        image.bytes("/lab/lib.sh", 0o644, include_str!("guest/lib.sh"));
        for (path, text) in &self.files {
            image.bytes(path, 0o644, text.as_str());
        }
        image.command(script.1);
        let mut vm = Vm::new(kernel, self.cpus);
        vm.clock = self.clock;
        vm.halvings = self.halvings;
        vm.memory_mib = self.memory_mib;
        // A test holds for whatever moments a guest has.
        vm.repeats = false;
        vm.alone = false;
        vm.nested = self.nested;
        let outcome = vm.run(&image, self.timeout, &mut tell_wait).unwrap();
        let results = Results(outcome);
        assert_eq!(
            results.0.status,
            0,
            "{} failed on {}, see {}\n{}\n{}",
            script.0,
            self.kernel,
            results.0.log.display(),
            results.0.console,
            results.logs()
        );
        results
    }
}

/// One of the workspace's programs.
fn own(name: &str) -> PathBuf {
    let program = Path::new(env!("CARGO_BIN_EXE_rota")).with_file_name(name);
    assert!(
        program.is_file(),
        "{} is missing: run `cargo build --workspace --bins --examples`",
        program.display()
    );
    program
}

/// Runs the command line to its end and returns what it prints as JSON.
pub fn rota<T: DeserializeOwned>(arguments: &[&str]) -> T {
    let output = Command::new(env!("CARGO_BIN_EXE_rota")).args(arguments).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    said.lines().for_each(tell_wait);
    assert!(output.status.success(), "{said}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// A scenario of the lab's.
pub fn scenario(name: &str) -> String {
    format!("{}/../rota-lab/scenarios/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// What a script left in `/results`.
pub struct Results(Outcome);

impl Results {
    /// A file.
    pub fn text(&self, name: &str) -> String {
        String::from_utf8(self.bytes(name).to_vec()).unwrap()
    }

    /// The bytes of a file.
    pub fn bytes(&self, name: &str) -> &[u8] {
        let results = &self.0.results;
        results.get(name).unwrap_or_else(|| panic!("no {name} in {:?}", results.keys()))
    }

    pub fn json<T: DeserializeOwned>(&self, name: &str) -> T {
        let text = self.text(&format!("{name}.json"));
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{name}.json: {error}: {text:?}"))
    }

    /// An answer of `rota status`.
    pub fn status(&self, name: &str) -> Status {
        self.json(name)
    }

    /// What a probe saw.
    pub fn gaps(&self, name: &str) -> Gaps {
        self.json(name)
    }

    /// The lines of `rota up` with `text`.
    pub fn logged(&self, text: &str) -> Vec<String> {
        let log = self.text("up.log");
        log.lines().filter(|line| line.contains(text)).map(str::to_owned).collect()
    }

    /// All logs, for a failure's message.
    pub fn logs(&self) -> String {
        let logs = self.0.results.iter().filter(|(name, _)| name.ends_with(".log"));
        logs.map(|(name, log)| format!("{name}:\n{}", String::from_utf8_lossy(log))).collect()
    }
}

/// The tenant called `name`.
pub fn tenant<'a>(status: &'a Status, name: &str) -> &'a TenantStatus {
    status
        .tenants
        .iter()
        .find(|tenant| tenant.name == name)
        .unwrap_or_else(|| panic!("no {name} in {status:?}"))
}

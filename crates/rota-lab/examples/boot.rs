//! Boots a kernel with chosen programs inside and runs one command in it.

use anyhow::{Context, Result};
use clap::Parser;
use rota_lab::{Clock, Image, Kernel, Vm};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Boot a kernel in QEMU and run a command in it; the exit status is the command's
#[derive(Parser)]
struct Options {
    /// Release, or the beginning of one: 7, 6.18
    #[arg(long, default_value = "")]
    kernel: String,
    #[arg(long, default_value_t = 2)]
    cpus: u32,
    /// MiB
    #[arg(long, default_value_t = 1024)]
    memory: u32,
    /// HOST:GUEST, a file (with its libraries, if it is a program) or a folder
    #[arg(long = "file", value_name = "HOST:GUEST")]
    files: Vec<String>,
    /// A program on the host's PATH, put at the same place with its libraries
    #[arg(long = "program", value_name = "NAME")]
    programs: Vec<String>,
    /// A kernel module to load
    #[arg(long = "module", value_name = "NAME")]
    modules: Vec<String>,
    /// Words for the kernel's command line
    #[arg(long = "append", value_name = "WORDS")]
    append: Vec<String>,
    /// Shell command to run in the guest
    #[arg(long)]
    command: String,
    /// Count instructions instead of time: every run is the same
    #[arg(long)]
    icount: bool,
    /// Let the guest run virtual machines (loads kvm-amd)
    #[arg(long)]
    nested: bool,
    /// Folder for what the command left in /results
    #[arg(long, value_name = "FOLDER")]
    results: Option<PathBuf>,
    /// Seconds
    #[arg(long, default_value_t = 300)]
    timeout: u64,
}

fn main() -> Result<()> {
    let options = Options::parse();
    let kernel = Kernel::fetch(&options.kernel, &mut |message| eprintln!("{message}"))?;
    let image = image(&options, &kernel)?;
    let mut vm = Vm::new(kernel, options.cpus);
    vm.memory_mib = options.memory;
    vm.nested = options.nested;
    vm.append.clone_from(&options.append);
    if options.icount {
        vm.clock = Clock::Instructions;
    }
    let outcome = vm.run(&image, Duration::from_secs(options.timeout), &mut |line| println!("{line}"))?;
    for (name, content) in &outcome.results {
        let Some(folder) = &options.results else { break };
        let path = folder.join(name);
        std::fs::create_dir_all(path.parent().unwrap_or(folder))?;
        std::fs::write(&path, content)?;
    }
    eprintln!("{}: status {} after {:.2} s", vm.kernel.version, outcome.status, outcome.wall.as_secs_f64());
    std::process::exit(outcome.status);
}

fn image(options: &Options, kernel: &Kernel) -> Result<Image> {
    let mut image = Image::new(kernel)?;
    for file in &options.files {
        let (host, guest) = file.split_once(':').with_context(|| format!("{file}: expected HOST:GUEST"))?;
        let host = Path::new(host);
        if host.is_dir() { image.folder(host, guest)? } else { image.program(host, guest)? }
    }
    for program in &options.programs {
        image.program_on_path(program)?;
    }
    let nested = if options.nested { Some("kvm-amd") } else { None };
    for module in options.modules.iter().map(String::as_str).chain(nested) {
        image.module(module)?;
    }
    image.command(&options.command);
    Ok(image)
}

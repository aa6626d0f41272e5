//! The command line.
//!
//! Exit codes: 0 done, 1 failed, 2 bad usage or configuration, 3 infeasible.

// They panic if nobody reads: `commands::print` and `commands::note` do not.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod commands;
mod doctor;
mod extender;
mod papers;
mod parallel;
mod plan;
mod report;
mod sim;
mod top;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use commands::{
    advise, check, doctor as doctor_command, down, farm, fit, guest, lab, load, pages, plan as plan_command,
    profile, record, sim as sim_command, status, top as top_command, up,
};

/// A CPU scheduler for Linux hosts that keeps its promises.
///
/// Exit codes: 0 done, 1 failed, 2 bad usage or configuration, 3 infeasible.
#[derive(Debug, Parser)]
#[command(version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Plan(plan_command::Arguments),
    Check(check::Arguments),
    Fit(fit::Arguments),
    Up(up::Arguments),
    Down(down::Arguments),
    Status(status::Arguments),
    Top(top_command::Arguments),
    Doctor(doctor_command::Arguments),
    Profile(profile::Arguments),
    Advise(advise::Arguments),
    Load(load::Arguments),
    Sim(sim_command::Arguments),
    Farm(farm::Arguments),
    Guest(guest::Arguments),
    Record(record::Arguments),
    Lab(lab::Arguments),
    Demo(lab::Demo),
    Pages(pages::Arguments),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Plan(arguments) => plan_command::run(&arguments),
        Command::Check(arguments) => check::run(&arguments),
        Command::Fit(arguments) => fit::run(&arguments),
        Command::Up(arguments) => up::run(&arguments),
        Command::Down(arguments) => down::run(&arguments),
        Command::Status(arguments) => status::run(&arguments),
        Command::Top(arguments) => top_command::run(&arguments),
        Command::Doctor(arguments) => doctor_command::run(&arguments),
        Command::Profile(arguments) => profile::run(&arguments),
        Command::Advise(arguments) => advise::run(&arguments),
        Command::Load(arguments) => load::run(&arguments),
        Command::Sim(arguments) => sim_command::run(&arguments),
        Command::Farm(arguments) => farm::run(&arguments),
        Command::Guest(arguments) => guest::run(&arguments),
        Command::Record(arguments) => record::run(&arguments),
        Command::Lab(arguments) => lab::run(&arguments),
        Command::Demo(arguments) => lab::demo(&arguments),
        Command::Pages(arguments) => pages::run(&arguments, Cli::command()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            failure.print();
            failure.code()
        }
    }
}

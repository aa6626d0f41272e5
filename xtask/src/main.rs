//! The project's own chores. `cargo xtask test` runs every check and every test and ends with one summary; the rules
//! that no compiler knows are the tests of this crate (`tidy/`).

mod binary;
mod steps;
mod summary;
mod tally;
#[cfg(test)]
mod tidy;

use std::process::ExitCode;

use steps::Selection;

const USAGE: &str = "\
usage: cargo xtask test     every check and every test
       cargo xtask quick    format, unit tests, the project's rules, the simulator and five of the farm's seeds
Either ends with one summary.";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let selection = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["test"] => Selection::Test,
        ["quick"] => Selection::Quick,
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match steps::run(selection) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

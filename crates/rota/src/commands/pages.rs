//! `rota pages`, which only packages need: man pages, and what shells complete.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Command, ValueEnum};
use clap_complete::{Shell, generate_to};
use clap_mangen::roff::{Roff, bold, roman};

use super::Failure;

/// The configuration with every key and comments, which its man page shows.
const EXAMPLE: &str = include_str!("../../../../examples/rota.toml");

/// What is said before it.
const DESCRIPTION: &str = "\
The first file describes the host, and may have tenants. Each of the others has tenants only. A running daemon reads \
them anew when they are edited, and one with a mistake changes nothing. All keys are in the example.";

/// The shells for which a package has completions.
const SHELLS: [Shell; 3] = [Shell::Bash, Shell::Zsh, Shell::Fish];

/// Write man pages and completions for a package
#[derive(Debug, clap::Args)]
#[command(hide = true)]
pub struct Arguments {
    /// Where to write them: in the folders man and completions of it
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
}

pub fn run(arguments: &Arguments, command: Command) -> Result<(), Failure> {
    Ok(write(&arguments.folder, command)?)
}

fn write(folder: &Path, command: Command) -> Result<()> {
    // The pages of `rota help` would say what the others say.
    let mut command = command.disable_help_subcommand(true);
    let (man, completions) = (folder.join("man"), folder.join("completions"));
    for folder in [&man, &completions] {
        std::fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
    }
    for shell in SHELLS {
        let name = shell.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned());
        generate_to(shell, &mut command, "rota", &completions)
            .with_context(|| format!("writing completions for {name} to {}", completions.display()))?;
    }
    let page = man.join("rota.toml.5");
    std::fs::write(&page, configuration_page()).with_context(|| format!("writing {}", page.display()))?;
    clap_mangen::generate_to(command, &man).with_context(|| format!("writing man pages to {}", man.display()))
}

/// rota.toml(5): where the file is, and each key in an example.
fn configuration_page() -> String {
    let mut page = Roff::default();
    page.control("TH", ["rota.toml", "5", "", "", ""]);
    page.control("SH", ["NAME"]);
    page.text([roman("rota.toml - hosts and tenants of the CPU scheduler Rota")]);
    page.control("SH", ["SYNOPSIS"]);
    page.text([bold("/etc/rota/rota.toml"), roman(", "), bold("/etc/rota/tenants.d/*.toml")]);
    page.control("SH", ["DESCRIPTION"]);
    page.text([roman(DESCRIPTION)]);
    page.control("SH", ["EXAMPLE"]);
    page.control("nf", []);
    page.text([roman(EXAMPLE)]);
    page.control("fi", []);
    page.control("SH", ["SEE ALSO"]);
    page.text([
        bold("rota-up"),
        roman("(1), "),
        bold("rota-plan"),
        roman("(1), "),
        bold("rota-doctor"),
        roman("(1)"),
    ]);
    page.render()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use clap::CommandFactory;

    use super::*;

    #[test]
    fn each_command_has_a_page_and_each_shell_its_completions() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), crate::Cli::command()).unwrap();
        let read = |path: &str| fs::read_to_string(folder.path().join(path)).unwrap();
        let commands = crate::Cli::command();
        let shown = commands.get_subcommands().filter(|command| !command.is_hide_set());
        let names: Vec<&str> = shown.map(Command::get_name).collect();
        assert!(names.len() >= 10, "{names:?}");
        for name in names {
            assert!(read(&format!("man/rota-{name}.1")).contains(".SH OPTIONS"), "{name}");
            for shell in ["rota.bash", "_rota", "rota.fish"] {
                assert!(read(&format!("completions/{shell}")).contains(name), "{shell} lacks {name}");
            }
        }
        for none in ["pages", "help", "help-up"] {
            assert!(!folder.path().join(format!("man/rota-{none}.1")).exists(), "{none}");
        }
        assert!(read("man/rota.1").contains("rota\\-doctor(1)"));
    }

    /// Each line of the example is a line of the page, whatever roff thinks of its first character.
    #[test]
    fn the_page_of_the_configuration_has_the_example() {
        let page = configuration_page();
        for key in ["[host]", "housekeeping = ", "exclusive_cores = true", "qemu\\\\x2d1"] {
            assert!(page.contains(key), "{key} is not in\n{page}");
        }
        assert!(page.lines().count() > EXAMPLE.lines().count());
    }
}

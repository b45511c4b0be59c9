//! `lastmeter completions` and `lastmeter man`: what shells and `man` know of the program, made from its options.

use crate::{Arguments as Program, Complaint, Ended, output, results};
use clap::CommandFactory;
use std::path::PathBuf;

/// Print the completions of a shell.
#[derive(clap::Args)]
#[command(after_help = COMPLETIONS)]
pub(crate) struct Completions {
    /// The shell
    shell: clap_complete::Shell,
}

const COMPLETIONS: &str = "\
Examples:
  lastmeter completions bash > ~/.local/share/bash-completion/completions/lastmeter
  lastmeter completions zsh > ~/.zfunc/_lastmeter
  lastmeter completions fish > ~/.config/fish/completions/lastmeter.fish";

pub(crate) fn completions(arguments: &Completions) -> Result<Ended, Complaint> {
    let mut text = Vec::new();
    clap_complete::generate(arguments.shell, &mut Program::command(), "lastmeter", &mut text);
    output::print(&String::from_utf8_lossy(&text));
    Ok(Ended::Done)
}

/// Write the manual pages of the program and of each command.
#[derive(clap::Args)]
#[command(after_help = MAN)]
pub(crate) struct Man {
    /// The folder for lastmeter.1, lastmeter-run.1 and so on [default: print lastmeter.1]
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
}

const MAN: &str = "\
Examples:
  lastmeter man | man -l -
  lastmeter man --out ~/.local/share/man/man1 && man lastmeter-run";

pub(crate) fn man(arguments: &Man) -> Result<Ended, Complaint> {
    results::prepare(arguments.out.as_deref())?;
    let mut program = Program::command();
    program.build();
    let Some(folder) = &arguments.out else {
        output::print(&page(program)?);
        return Ok(Ended::Done);
    };
    let commands: Vec<clap::Command> = program.get_subcommands().cloned().collect();
    let mut written = 1;
    results::save(folder, "lastmeter.1", page(program)?.as_bytes())?;
    for command in commands {
        if command.get_name() == "help" {
            continue;
        }
        let name = format!("lastmeter-{}.1", command.get_name());
        results::save(folder, &name, page(command)?.as_bytes())?;
        written += 1;
    }
    output::note(&format!("Written {written} pages to {}", folder.display()));
    Ok(Ended::Done)
}

fn page(command: clap::Command) -> Result<String, Complaint> {
    let mut text = Vec::new();
    clap_mangen::Man::new(command).render(&mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

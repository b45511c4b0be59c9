//! `lastmeterd wave`: Wave Video with the live router.

mod draw;
mod film;
mod live;
mod net;
mod part;
mod report;

use crate::{Complaint, Report};

#[derive(clap::Subcommand)]
pub(crate) enum Command {
    /// Draw the studies: a table, PSNR over time, sub-bands, and films of plain queueing beside scaling
    Film(film::Film),
    /// Run an experiment in network namespaces, with live routers and their plugins, beside its model
    Live(live::Live),
    /// What a host of a live run does
    #[command(hide = true)]
    Part(part::Part),
}

pub(crate) fn run(command: Command) -> Result<Report, Complaint> {
    match command {
        Command::Film(arguments) => film::film(&arguments),
        Command::Live(arguments) => live::live(&arguments),
        Command::Part(arguments) => part::part(&arguments),
    }
}

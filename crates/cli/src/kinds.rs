//! `lastmeter kinds`: the reference for experiment files, generated from the code.

use crate::{Common, Complaint, Ended, output};
use lastmeter_guest::registers::program::program;
use lastmeter_lab::historic;
use lastmeter_lab::kinds::{self, Registry};
use lastmeter_lab::library::{Builtin, Library};
use lastmeter_lab::profile::device;
use lastmeter_lab::schema;

/// Print the reference for experiment files: every kind and its parameters, generated from the code.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// The kind to describe [default: list all kinds]
    name: Option<String>,
    /// Draw an adapter, or a host's copies, as SVG
    #[arg(long, requires = "name")]
    svg: bool,
    /// Print an adapter's control logic in Verilog, with a test bench
    #[arg(long, requires = "name", conflicts_with = "svg")]
    verilog: bool,
    /// Print a Linux driver, in C, of an adapter with registers (docs/guests.md)
    #[arg(long, requires = "name", conflicts_with_all = ["svg", "verilog"])]
    driver: bool,
    /// Print the JSON Schema of experiment files
    #[arg(long, conflicts_with = "name")]
    schema: bool,
    /// Print the whole reference manual as one HTML page
    #[arg(long, conflicts_with_all = ["name", "schema"])]
    html: bool,
}

const EXAMPLES: &str = "\
Examples:
  lastmeter kinds
  lastmeter kinds token-bucket
  lastmeter kinds cim                     an adapter in five sections, drawn
  lastmeter kinds pcie4 --svg > pcie4.svg
  lastmeter kinds cim --verilog > cim.v   its control logic, for a simulator or an FPGA
  lastmeter kinds pcie4 --driver > lastmeter_nic.c
  lastmeter kinds --html > manual.html    all kinds on one page
  lastmeter kinds hp9000-730+afterburner  the copies of a host with an adapter, drawn
  lastmeter kinds --schema > experiment.schema.json";

pub(crate) fn kinds(common: &Common, arguments: &Arguments) -> Result<Ended, Complaint> {
    if arguments.schema {
        output::print(&schema::text());
        return Ok(Ended::Done);
    }
    if arguments.html {
        output::print(&lastmeter_lab::manual::render().map_err(Complaint)?);
        return Ok(Ended::Done);
    }
    match &arguments.name {
        None if common.json => output::print(&format!("{:#}", Registry::builtin().list_json())),
        None => {
            output::print(&Registry::builtin().list_text());
            let adapters = Builtin.names(device::FOLDER).join(", ");
            output::print(&format!("Adapters in five sections, also drawn: {adapters}\n"));
        }
        Some(name) if arguments.driver => {
            let card = device::read(name, &Builtin).map_err(Complaint)?;
            output::print(program(name, &card).trim_end());
        }
        Some(name) if name.contains('+') && !arguments.verilog => {
            let drawn = historic::copies(name, arguments.svg, &Builtin);
            output::print(&drawn.map_err(|problems| crate::run::rendered(&problems))?);
        }
        Some(name) if arguments.svg => {
            let card = device::read(name, &Builtin).map_err(Complaint)?;
            output::print(&device::svg(&card));
        }
        Some(name) if arguments.verilog => {
            let text = device::read(name, &Builtin).and_then(|card| device::verilog(&card));
            output::print(&text.map_err(Complaint)?);
        }
        Some(name) if Registry::builtin().find(name).is_err() && is_adapter(name) => {
            output::print(&device::page(name, &Builtin).map_err(Complaint)?);
        }
        Some(name) => {
            let page = Registry::builtin()
                .find(name)
                .map_err(|near| unknown(name, near.map(|p| p.name)))?;
            match common.json {
                true => output::print(&format!("{:#}", kinds::page_json(page))),
                false => output::print(&kinds::page_text(page)),
            }
        }
    }
    Ok(Ended::Done)
}

fn is_adapter(name: &str) -> bool {
    Builtin.names(device::FOLDER).iter().any(|known| known == name)
}

fn unknown(name: &str, near: Option<&str>) -> Complaint {
    let hint = match near {
        Some(near) => format!("did you mean `{near}`?"),
        None => "`lastmeter kinds` lists them all".to_owned(),
    };
    Complaint(format!("there is no kind `{name}`: {hint}"))
}

//! Tickets for transfers between devices, from the command line: made, shown, used; and the keys of devices.

use crate::device::File;
use crate::{Complaint, Report};
use lastmeter_base::{Bytes, Duration, Quantity, Rate};
use lastmeter_device::display::server::geometry;
use lastmeter_device::transfer::identity::{self, Key};
use lastmeter_device::transfer::tickets::{COMMENT, LIFETIME_MAX, seconds};
use lastmeter_device::transfer::{Config, Listening, present};
use lastmeter_linux::files;
use lastmeter_plugin::trust::{self, TEXT_LEN_MAX};
use lastmeter_wire::rfb::Area;
use lastmeter_wire::ticket::{From, KEY_LEN, Signed, Ticket, To, WORDS_MAX};
use serde_json::json;
use std::io::Write;
use std::path::PathBuf;
use std::time::Instant;

/// Picoseconds of a microsecond, in which a ticket has its interval.
const PS_A_US: u64 = 1_000_000;

#[derive(clap::Args)]
pub(crate) struct Make {
    /// The ticket's file
    ticket: PathBuf,
    /// The issuer's secret key (`plugin key` makes one); a password is taken from LASTMETER_KEY_PASSWORD
    #[arg(long)]
    key: PathBuf,
    /// The device that gives: KEY@HOST:PORT, as it says when it starts
    #[arg(long)]
    from: String,
    /// The device that takes: KEY@HOST:PORT
    #[arg(long)]
    to: String,
    /// From a disk: OFFSET+LENGTH, such as "0 B+1 GiB"
    #[arg(long, required_unless_present = "frames", conflicts_with = "frames")]
    read: Option<String>,
    /// From a camera: so many frames
    #[arg(long)]
    frames: Option<u32>,
    /// The camera's frames in this size: 320x240
    #[arg(long, requires = "frames")]
    size: Option<String>,
    /// To a disk: OFFSET of as many bytes as are read, or OFFSET+LENGTH for frames
    #[arg(long, required_unless_present = "area", conflicts_with = "area")]
    write: Option<String>,
    /// To a display: 320x240+10+20, on the issuer's screen
    #[arg(long)]
    area: Option<String>,
    /// The highest rate of the data: 100 Mbit/s
    #[arg(long)]
    rate: Option<String>,
    /// Time from frame to frame: 40 ms
    #[arg(long)]
    interval: Option<String>,
    /// For how long it is valid, by the devices' clocks
    #[arg(long, default_value = "10 min")]
    valid: String,
}

#[derive(clap::Args)]
pub(crate) struct Use {
    /// The ticket's file
    ticket: PathBuf,
    /// Say what it allows, and do nothing
    #[arg(long)]
    show: bool,
}

fn quantity<T: Quantity>(option: &str, text: &str) -> Result<T, Complaint> {
    T::parse(text).map_err(|error| Complaint(format!("--{option}: {error}")))
}

/// A device: its key and its address.
fn device(option: &str, text: &str) -> Result<(Key, String), Complaint> {
    let digits = 2 * KEY_LEN;
    let wrong =
        || Complaint(format!("--{option}: {text:?}: KEY@HOST:PORT, KEY of {digits} digits"));
    let (key, address) = text.split_once('@').ok_or_else(wrong)?;
    Ok((identity::parse(key).ok_or_else(wrong)?, address.to_owned()))
}

/// An offset and, behind a plus, a length.
fn range(option: &str, text: &str) -> Result<(u64, Option<u64>), Complaint> {
    let (offset, length) = text.split_once('+').map_or((text, None), |(a, b)| (a, Some(b)));
    let bytes = |text: &str| quantity::<Bytes>(option, text).map(|bytes| bytes.0);
    Ok((bytes(offset)?, length.map(bytes).transpose()?))
}

fn ticket(arguments: &Make) -> Result<Ticket, Complaint> {
    let (source, source_address) = device("from", &arguments.from)?;
    let (destination, destination_address) = device("to", &arguments.to)?;
    let area = |option: &str, text: &str| geometry(option, text).map_err(Complaint);
    let from = match (&arguments.read, arguments.frames) {
        (Some(read), _) => match range("read", read)? {
            (offset, Some(length)) => From::Blocks { offset, length },
            _ => return Err(Complaint("--read: OFFSET+LENGTH, such as \"0 B+1 GiB\"".to_owned())),
        },
        (None, count) => {
            // Frames of a display have its area's size.
            let size = arguments.size.as_deref().or(arguments.area.as_deref());
            let size = size.map(|text| area("size", text)).transpose()?;
            let (width, height) = size.map_or((0, 0), |size| (size.w, size.h));
            From::Frames { count: count.unwrap_or(0), width, height }
        }
    };
    let to = match (&arguments.write, &arguments.area) {
        (None, Some(text)) => {
            let rect = area("area", text)?;
            To::Area(Area { x: rect.x, y: rect.y, w: rect.w, h: rect.h })
        }
        (write, _) => {
            let (offset, length) = range("write", write.as_deref().unwrap_or(""))?;
            let length = match (length, from) {
                (Some(length), _) => length,
                (None, From::Blocks { length, .. }) => length,
                _ => return Err(Complaint("--write: OFFSET+LENGTH for frames".to_owned())),
            };
            To::Blocks { offset, length }
        }
    };
    let rate = arguments.rate.as_deref().map(|text| quantity::<Rate>("rate", text)).transpose()?;
    let interval = arguments.interval.as_deref();
    let interval = interval.map(|text| quantity::<Duration>("interval", text)).transpose()?;
    let interval = interval.map_or(0, |interval| interval.as_ps() / PS_A_US);
    let valid = quantity::<Duration>("valid", &arguments.valid)?.as_secs_f64() as u64;
    if !(1..=LIFETIME_MAX).contains(&valid) {
        return Err(Complaint(format!("--valid: from 1 s to {} days", LIFETIME_MAX / 86_400)));
    }
    Ok(Ticket {
        id: lastmeter_device::transfer::id()?,
        expires: seconds() + valid,
        rate: rate.map_or(0, |rate| rate.as_bits() / 8),
        interval: u32::try_from(interval).unwrap_or(u32::MAX),
        source,
        destination,
        source_address,
        destination_address,
        from,
        to,
    })
}

pub(crate) fn make(arguments: &Make) -> Result<Report, Complaint> {
    let ticket = ticket(arguments)?;
    let bytes = ticket.emit()?;
    let secret = files::read(&arguments.key, TEXT_LEN_MAX)?;
    let password = std::env::var("LASTMETER_KEY_PASSWORD").ok();
    let secret = String::from_utf8_lossy(&secret);
    let signature = trust::sign_as(&secret, password, COMMENT, &bytes)?;
    let signed = Signed { ticket: bytes, signature }.emit()?;
    let place = |error| Complaint(format!("{}: {error}", arguments.ticket.display()));
    files::replace(&arguments.ticket, &signed).map_err(place)?;
    let text = format!("{}   a ticket for one transfer\n", arguments.ticket.display());
    Ok(Report { text, json: vec![json!({ "ticket": arguments.ticket })], good: true })
}

/// What a ticket allows.
fn shown(ticket: &Ticket) -> Report {
    let from = match ticket.from {
        From::Blocks { offset, length } => format!("bytes {offset}+{length}"),
        From::Frames { count, width: 0, height: 0 } => format!("{count} frames"),
        From::Frames { count, width, height } => format!("{count} frames of {width}x{height}"),
    };
    let to = match ticket.to {
        To::Blocks { offset, length } => format!("bytes {offset}+{length}"),
        To::Area(Area { x, y, w, h }) => format!("{w}x{h}+{x}+{y}"),
    };
    let left = ticket.expires.saturating_sub(seconds());
    let (source, destination) =
        (identity::text(&ticket.source), identity::text(&ticket.destination));
    let json = json!({
        "from": format!("{source}@{}", ticket.source_address), "read": from,
        "to": format!("{destination}@{}", ticket.destination_address), "write": to,
        "expires": ticket.expires, "rate": ticket.rate, "interval": ticket.interval,
    });
    let limits = match (ticket.rate, ticket.interval) {
        (0, 0) => "as fast as it goes".to_owned(),
        (rate, 0) => format!("at most {rate} B/s"),
        (0, interval) => format!("a frame each {interval} us"),
        (rate, interval) => format!("at most {rate} B/s, a frame each {interval} us"),
    };
    let text = format!(
        "{from} of {source} at {}\nto {to} of {destination} at {}\n{limits}; valid for {left} s\n",
        ticket.source_address, ticket.destination_address
    );
    Report { text, json: vec![json], good: true }
}

pub(crate) fn apply(arguments: &Use) -> Result<Report, Complaint> {
    let bytes = files::read(&arguments.ticket, WORDS_MAX)?;
    let place = |error| Complaint(format!("{}: {error}", arguments.ticket.display()));
    let signed = Signed::parse(&bytes).map_err(place)?;
    if arguments.show {
        return Ok(shown(&Ticket::parse(&signed.ticket).map_err(place)?));
    }
    let began = Instant::now();
    let done = present(&signed, |bytes| {
        let _ = writeln!(std::io::stderr(), "{bytes} B so far");
    });
    let elapsed = began.elapsed().as_secs_f64();
    Ok(match done {
        Ok(bytes) => Report {
            text: format!("transferred {bytes} B in {elapsed:.2} s\n"),
            json: vec![json!({ "good": true, "bytes": bytes, "seconds": elapsed })],
            good: true,
        },
        Err(why) => Report {
            text: format!("refused: {why}\n"),
            json: vec![json!({ "good": false, "why": why, "seconds": elapsed })],
            good: false,
        },
    })
}

/// Says where a device waits for tickets, as `--from` and `--to` have it.
pub(crate) fn tell(transfers: Option<Listening>) -> Result<(), Complaint> {
    let Some(Listening { address, key }) = transfers else { return Ok(()) };
    crate::print(&format!("transfers with {}@{address}\n", identity::text(&key)))
}

/// The key of the device of this file, made if it is missing.
pub(crate) fn identity(file: &File, transfer: Option<&Config>) -> Result<Report, Complaint> {
    let none = || file.place("it has no [transfer]");
    let config = transfer.ok_or_else(none)?;
    let own = config.identity(file.folder()).map_err(|why| file.place(why))?;
    let device = format!("{}@{}", identity::text(&own.key), config.listen);
    Ok(Report { text: format!("{device}\n"), json: vec![json!({ "device": device })], good: true })
}

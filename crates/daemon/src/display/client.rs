//! Drawing on a display, and looking at it, from the command line.

use super::picture;
use crate::{Complaint, Report};
use lastmeter_device::display::commands::Program;
use lastmeter_device::display::viewer::{Proof, Viewer};
use lastmeter_device::{duplex, tls};
use lastmeter_plugin::request::Rect;
use lastmeter_wire::framebuffer::{Operation, status};
use lastmeter_wire::rfb::{Message, encoding};
use serde_json::json;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

#[derive(clap::Args)]
pub(crate) struct Shot {
    /// Where viewers connect to: 127.0.0.1:5900
    address: String,
    /// The picture's file
    picture: PathBuf,
    /// Whose screen: without TLS the first 8 characters of the token count, as VNC has it
    #[arg(long)]
    token: Option<String>,
    /// Through TLS (VeNCrypt), to a display whose certificate, or that of its authority, is in this file
    #[arg(long)]
    trust: Option<PathBuf>,
    /// A certificate that says whose screen, with its `--key`
    #[arg(long, requires_all = ["trust", "key"])]
    certificate: Option<PathBuf>,
    /// The certificate's key
    #[arg(long, requires = "certificate")]
    key: Option<PathBuf>,
}

/// Where a program draws, and as whom.
#[derive(clap::Args)]
pub(super) struct Place {
    /// Where programs connect to: 127.0.0.1:5899, or the path of a socket
    address: String,
    /// Who draws
    #[arg(long, default_value = "")]
    token: String,
    /// Through TLS, to a display whose certificate, or that of its authority, is in this file
    #[arg(long)]
    trust: Option<PathBuf>,
    /// A certificate that says who draws, with its `--key`
    #[arg(long, requires_all = ["trust", "key"])]
    certificate: Option<PathBuf>,
    /// The certificate's key
    #[arg(long, requires = "certificate")]
    key: Option<PathBuf>,
}

#[derive(clap::Args)]
pub(crate) struct Draw {
    #[command(flatten)]
    place: Place,
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// Fill a rectangle with a colour: fill 10 10 100 50 ff8000
    Fill { x: u16, y: u16, width: u16, height: u16, colour: String },
    /// Copy a rectangle from elsewhere on the screen
    Copy { x: u16, y: u16, width: u16, height: u16, from_x: u16, from_y: u16 },
    /// Put a picture (PNG or JPEG) with its corner at a place
    Put { x: u16, y: u16, picture: PathBuf },
}

/// A connection to a display, of either kind.
pub(super) trait Connection: Read + Write + Send {}
impl<T: Read + Write + Send> Connection for T {}

impl Place {
    /// Connects a program: to a host and port, or to the path of a socket.
    pub(super) fn program(&self) -> Result<Program<Box<dyn Connection>>, Complaint> {
        let address = &self.address;
        let place = |error: &dyn std::fmt::Display| Complaint(format!("{address}: {error}"));
        let stream: Box<dyn Connection> = if address.contains('/') {
            Box::new(UnixStream::connect(address).map_err(|error| place(&error))?)
        } else {
            let stream = TcpStream::connect(address).map_err(|error| place(&error))?;
            stream.set_nodelay(true)?;
            match &self.trust {
                None => Box::new(stream),
                Some(file) => {
                    let own = self.certificate.as_deref().zip(self.key.as_deref());
                    let config = tls::client(file, own)?;
                    let connected = duplex::connect(config, host(address), stream);
                    Box::new(connected.map_err(|why| place(&why))?)
                }
            }
        };
        Program::greet(stream, &self.token).map_err(|why| place(&why))
    }
}

/// Connects a program without TLS.
pub(super) fn program(
    address: &str,
    token: &str,
) -> Result<Program<Box<dyn Connection>>, Complaint> {
    let (address, token) = (address.to_owned(), token.to_owned());
    Place { address, token, trust: None, certificate: None, key: None }.program()
}

/// The host of an address with a port.
fn host(address: &str) -> &str {
    address.rsplit_once(':').map_or("", |(host, _)| host).trim_matches(['[', ']'])
}

pub(crate) fn shot(arguments: &Shot) -> Result<Report, Complaint> {
    let place = |error: String| Complaint(format!("{}: {error}", arguments.address));
    let stream =
        TcpStream::connect(&arguments.address).map_err(|error| place(error.to_string()))?;
    stream.set_read_timeout(Some(std::time::Duration::from_secs(10)))?;
    let name = host(&arguments.address).to_owned();
    let own = arguments.certificate.as_deref().zip(arguments.key.as_deref());
    let trusted = arguments.trust.as_ref().map(|file| tls::client(file, own)).transpose()?;
    let proof = Proof { token: arguments.token.clone(), tls: trusted.map(|tls| (tls, name)) };
    let mut viewer = Viewer::prove(stream, &proof).map_err(place)?;
    viewer.send(&Message::Encodings(vec![encoding::ZRLE, encoding::RAW])).map_err(place)?;
    viewer.update(false).map_err(place)?;
    picture::save(&arguments.picture, viewer.size, &viewer.pixels)?;
    let (w, h) = viewer.size;
    let text = format!("{}: {w} by {h} pixels\n", arguments.picture.display());
    Ok(Report { text, json: vec![json!({ "width": w, "height": h })], good: true })
}

pub(crate) fn draw(arguments: &Draw) -> Result<Report, Complaint> {
    let mut program = arguments.place.program()?;
    let (operation, at, data) = match &arguments.what {
        What::Fill { x, y, width, height, colour } => {
            let number = u32::from_str_radix(colour.trim_start_matches('#'), 16);
            let number = number.ok().filter(|_| colour.trim_start_matches('#').len() == 6);
            let number = number.ok_or(format!("{colour:?} is no colour; write ff8000"))?;
            let at = Rect { x: *x, y: *y, w: *width, h: *height };
            (Operation::FILL, at, number.to_le_bytes().to_vec())
        }
        What::Copy { x, y, width, height, from_x, from_y } => {
            let at = Rect { x: *x, y: *y, w: *width, h: *height };
            (Operation::COPY, at, [from_x.to_be_bytes(), from_y.to_be_bytes()].concat())
        }
        What::Put { x, y, picture } => {
            let (operation, (w, h), data) = picture::load(picture)?;
            (operation, Rect { x: *x, y: *y, w, h }, data)
        }
    };
    let (state, _) = program.ask(operation, at, &data)?;
    let (w, h) = program.size;
    let (said, good) = match state {
        status::DONE => ("drawn".to_owned(), true),
        status::CLIPPED => ("drawn in part: a policy clipped it".to_owned(), true),
        status::DENIED => ("a policy denies it".to_owned(), false),
        _ => (format!("not on the screen, which is {w} by {h}"), false),
    };
    Ok(Report { text: format!("{said}\n"), json: vec![json!({ "status": state })], good })
}

//! What the reports measured with their cameras, here: frame rates by size, and all cameras at one workstation (Aurora
//! report, Table 7 and section 4.3), and raw video beside compressed by the size of packets (ATOMIC-2, section 4.a).
//! Each row has what was published, what the model says, and this host's.
//!
//! Rows, N-71.

use super::bench::{Running, camera_as, receiver};
use super::client::{Manner, receive};
use super::loops::{told, watch};
use crate::Complaint;
use crate::device::File;
use crate::measured::{cpu_of, line};
use lastmeter::published;
use lastmeter_wire::camera::{Command as Asked, Format, Shape};
use serde_json::Value;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

/// Pictures a second of the published cameras.
const RATE: f64 = 30.0;
/// More than any source or host reaches.
const FREE: f64 = 1000.0;
/// CPU time that the report's workstation takes to receive and show 640x480x8: four times WindowSink's of Table 9.
const WINDOW_MS: f64 = 33.2;
/// Bytes of packets after UDP's header; the report's were of 512 bytes to 8 KB.
const PACKETS: [u16; 5] = [512, 1024, 2048, 4096, 8192];
/// Packets between two of which a receiver gets time to take them: 36 KB of them.
const BURST: usize = 36 * 1024;
const GAP_US: u32 = 150;
/// What may wait at a receiver.
const BUFFER: usize = 4 << 20;

/// What documents and models say.
struct Known(Vec<published::Value>);

impl Known {
    fn of(id: &str) -> Result<Known, Complaint> {
        Ok(Known(published::of(id)?))
    }
    /// Published, as it is printed, and modelled.
    fn item(&self, item: &str) -> (String, f64) {
        let value = self.0.iter().find(|value| value.item == item);
        let model = value.and_then(|value| value.model).unwrap_or(f64::NAN);
        (value.map_or_else(|| "-".to_owned(), |value| value.published.clone()), model)
    }
}

/// What a receiver got.
struct Here {
    frames: f64,
    mbit: f64,
    lost: u64,
    /// What the camera's ledger says sets the rate.
    limit: String,
    /// CPU seconds of the camera for a frame.
    cpu: f64,
}

/// A camera of this size and rate, watched as fast as it goes.
fn watched(
    folder: &Path,
    (size, rate, more): (&str, f64, &str),
    asked: &Asked,
    seconds: f64,
) -> Result<Here, Complaint> {
    let (camera, address) = camera_as(folder, "camera", size, rate, more)?;
    let mut receiver = receiver(address, asked.clone())?;
    receiver.buffer(BUFFER)?;
    let before = cpu_of(camera.0.id());
    let manner = Manner { seconds, rate: FREE, open: false, work: Duration::ZERO };
    let seen = receive(&mut receiver, manner)?;
    let used = cpu_of(camera.0.id()) - before;
    Ok(Here {
        frames: seen.frames as f64 / seen.seconds,
        mbit: seen.bytes as f64 * 8.0 / seen.seconds / 1e6,
        lost: seen.lost,
        limit: limit(folder, "camera")?,
        cpu: used / (seen.frames as f64).max(1.0),
    })
}

fn limit(folder: &Path, name: &str) -> Result<String, Complaint> {
    let ledger = File::at(folder.join(format!("{name}.toml"))).ask("frames")?;
    Ok(ledger["verdict"]["resource"].as_str().unwrap_or("nothing").to_owned())
}

/// Packets of so many bytes, spread so that the receiver's buffer holds them.
fn spread(packet: u16) -> Shape {
    let burst = (BURST / usize::from(packet.max(1))).max(1);
    Shape { packet, burst: burst as u16, gap: GAP_US, ..Shape::default() }
}

/// Table 7: two kinds of pictures in three sizes. Colour is 24 bits here, and was dithered to 8 there.
pub(super) fn sizes(
    folder: &Path,
    seconds: f64,
    text: &mut String,
    json: &mut Vec<Value>,
) -> Result<(), Complaint> {
    let known = Known::of("A-104")?;
    *text += "Table 7 of the Aurora report, frames/s: a camera of 30 frames/s, and one that is \
              never waited for\n\
              size     kind             published  model   here  limit     Mbit/s    free  \
              limit     lost\n";
    for size in ["640x480", "320x240", "160x120"] {
        for (kind, colour) in [("black and white", false), ("dithered colour", true)] {
            let (published, model) = known.item(&format!("{size}, {kind}"));
            let format = if colour { Format::Colour } else { Format::Grey };
            let asked = Asked { format, shape: spread(1472), ..Asked::default() };
            let more = format!("colour = {colour}\n");
            let paced = watched(folder, (size, RATE, &more), &asked, seconds)?;
            let free = watched(folder, (size, FREE, &more), &asked, seconds)?;
            *text += &format!(
                "{size:8} {kind:16} {published:>9} {model:6.1} {:6.1}  {:9} {:6.1} {:7.1}  {:9} \
                 {:4}\n",
                paced.frames,
                paced.limit,
                paced.mbit,
                free.frames,
                free.limit,
                paced.lost + free.lost,
            );
            let note = format!(
                "published {published}, model {model:.1}; {} sets the rate; without the camera's \
                 30 frames/s {:.1}, set by {}",
                paced.limit, free.frames, free.limit,
            );
            let name = format!("camera/sizes/{size}/{}", if colour { "colour" } else { "grey" });
            let mut row = line(&name, paced.frames, "frames/s", None, &note);
            row["published"] = published.into();
            row["model"] = model.into();
            row["limit"] = paced.limit.into();
            row["free"] = free.frames.into();
            row["free_limit"] = free.limit.into();
            row["lost"] = (paced.lost + free.lost).into();
            json.push(row);
        }
    }
    Ok(())
}

/// All cameras to one workstation: a picture takes what the report's workstation took, so they share its CPU.
pub(super) fn together(
    folder: &Path,
    seconds: f64,
    text: &mut String,
    json: &mut Vec<Value>,
) -> Result<(), Complaint> {
    let known = Known::of("A-105")?;
    let (published, model) = known.item("all streams together");
    *text += &format!(
        "All cameras to one workstation, 640x480x8: published {published} Mbit/s, model \
         {model:.1}; here, if a picture takes {WINDOW_MS} ms of CPU time:\n\
         cameras  frames/s  lost  Mbit/s for a whole core  limit\n"
    );
    for count in [1, 2, 4] {
        let names: Vec<String> = (0..count).map(|number| format!("camera{number}")).collect();
        let cameras: Vec<(Running, SocketAddr)> = names
            .iter()
            .map(|name| camera_as(folder, name, "640x480", RATE, "colour = false\n"))
            .collect::<Result<_, _>>()?;
        for (_, address) in &cameras {
            receiver(*address, Asked::default())?;
        }
        let (length, work) = (seconds.to_string(), WINDOW_MS.to_string());
        let burst = (BURST / 1472).to_string();
        let (gap, buffer) = (GAP_US.to_string(), BUFFER.to_string());
        let wanted = [
            ["--format", "grey", "--rate", "30", "--seconds", &length, "--work", &work],
            ["--burst", &burst, "--gap", &gap, "--buffer", &buffer, "--packet", "1472"],
        ]
        .concat();
        // One workstation has one core.
        let mut watching: Vec<Running> = cameras
            .iter()
            .map(|(_, address)| watch(*address, &wanted, Some(0)))
            .collect::<Result<_, _>>()?;
        let told: Vec<Value> = watching.iter_mut().map(told).collect::<Result<_, _>>()?;
        let sum = |key: &str| told.iter().filter_map(|one| one[key].as_f64()).sum::<f64>();
        let took = sum("seconds") / f64::from(count);
        let frames = sum("frames");
        let bits = f64::from(640 * 480 * 8) / 1e6;
        let whole = frames / sum("cpu").max(1e-9) * bits;
        let limits: Vec<String> =
            names.iter().map(|name| limit(folder, name)).collect::<Result<_, _>>()?;
        *text += &format!(
            "{count:7}  {:8.1}  {:4}  {whole:24.1}  {}\n",
            frames / took,
            sum("lost"),
            limits.join(" "),
        );
        let note = format!(
            "published {published} Mbit/s, model {model:.1}; {count} cameras of 30 frames/s, {:.1} \
             frames/s in all on one core; {whole:.1} Mbit/s for a second of its time; limits: {}",
            frames / took,
            limits.join(" "),
        );
        let mut row =
            line(&format!("camera/together/{count}"), frames / took, "frames/s", None, &note);
        row["published"] = published.clone().into();
        row["model"] = model.into();
        row["mbit_of_a_core"] = whole.into();
        row["lost"] = sum("lost").into();
        row["limits"] = limits.into();
        json.push(row);
    }
    Ok(())
}

/// Raw video by the size of packets, beside compressed: CPU time for bandwidth.
pub(super) fn packets(
    folder: &Path,
    seconds: f64,
    text: &mut String,
    json: &mut Vec<Value>,
) -> Result<(), Complaint> {
    let known = Known::of("N-71")?;
    let (compressed, raw) = (known.item("compressed"), known.item("raw in packets of 8 KB"));
    *text += "Raw and compressed by the size of packets (ATOMIC-2, section 4.a), 640x480 grey, as \
              fast as it goes\n\
              kind        bytes  published  model  frames/s   Mbit/s  camera's ms of CPU  \
              limit     lost\n";
    let none = ("-".to_owned(), f64::NAN);
    let jpeg = (Format::Jpeg, 0, &compressed);
    let grey = PACKETS.map(|size| (Format::Grey, size, if size == 8192 { &raw } else { &none }));
    for (format, size, (published, model)) in std::iter::once(jpeg).chain(grey) {
        let shape = if size == 0 { Shape::default() } else { spread(size) };
        let asked = Asked { format, shape, ..Asked::default() };
        let here = watched(folder, ("640x480", FREE, "colour = false\n"), &asked, seconds)?;
        let kind = if format == Format::Jpeg { "compressed" } else { "raw" };
        let shown = if model.is_nan() { "-".to_owned() } else { format!("{model:.1}") };
        *text += &format!(
            "{kind:11} {size:5}  {published:>9}  {shown:>5}  {:8.1} {:8.1}  {:18.2}  {:9} {:4}\n",
            here.frames,
            here.mbit,
            here.cpu * 1e3,
            here.limit,
            here.lost,
        );
        let note = format!(
            "published {published}, model {shown}; {:.1} Mbit/s, {:.2} ms of the camera's CPU for \
             a frame; {} sets the rate",
            here.mbit,
            here.cpu * 1e3,
            here.limit,
        );
        let name = format!("camera/packets/{kind}/{size}");
        let mut row = line(&name, here.frames, "frames/s", None, &note);
        row["published"] = published.clone().into();
        row["mbit"] = here.mbit.into();
        row["cpu"] = here.cpu.into();
        row["limit"] = here.limit.into();
        row["lost"] = here.lost.into();
        json.push(row);
    }
    Ok(())
}

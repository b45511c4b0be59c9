//! `lastmeterd router copies`: packets whose rules say that they are copied, as a capture whose times count from when
//! the port processor began.

use super::File;
use super::show::each;
use crate::{Complaint, Report};
use lastmeter_base::{Bytes, Time};
use lastmeter_wire::capture::{LinkType, Writer};
use serde_json::{Value, json};
use std::io::BufWriter;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How often copies are fetched.
const FETCH: Duration = Duration::from_millis(100);
/// The longest frame that is written.
const SNAP: Bytes = Bytes(1 << 16);

#[derive(clap::Args)]
pub(crate) struct Copies {
    #[command(flatten)]
    file: File,
    /// Where the capture goes, in pcapng
    #[arg(long, short)]
    out: PathBuf,
    /// For how many seconds; until Ctrl-C, if absent; 0 takes what is there
    #[arg(long)]
    seconds: Option<f64>,
}

pub(super) fn copies(arguments: &Copies) -> Result<Report, Complaint> {
    let Copies { file, out, seconds } = arguments;
    let place = |error: std::io::Error| Complaint(format!("{}: {error}", out.display()));
    let ended = crate::signals()?;
    let began = Instant::now();
    let mut shown = file.ask(&json!({ "show": "copies" }))?;
    let mut writer = Writer::pcapng(BufWriter::new(std::fs::File::create(out).map_err(place)?))?;
    for port in each(&shown, "ports") {
        let name = port["name"].as_str().unwrap_or("?");
        writer.add_interface(LinkType::ETHERNET, name, SNAP)?;
    }
    let mut count = 0;
    loop {
        for copy in each(&shown, "frames") {
            let (at, port, frame) = read(copy)?;
            writer.write(
                Time::from_ps(at.saturating_mul(1000)),
                port,
                Bytes(frame.len() as u64),
                &frame,
            )?;
            count += 1;
        }
        let over = seconds.is_some_and(|seconds| began.elapsed().as_secs_f64() >= seconds);
        if over || ended.load(Ordering::Relaxed) {
            break;
        }
        std::thread::sleep(FETCH);
        shown = file.ask(&json!({ "show": "copies" }))?;
    }
    writer.finish()?;
    let lost = shown["copies-lost"].as_u64().unwrap_or(0);
    let text = format!("{count} packets; {lost} were not copied since the router began\n");
    Ok(Report { text, json: vec![json!({ "packets": count, "lost": lost })], good: true })
}

/// When it arrived, where, and its bytes.
fn read(copy: &Value) -> Result<(u64, u32, Vec<u8>), Complaint> {
    let wrong = || Complaint("the router sent no copy that can be read".to_owned());
    let text = copy["frame"].as_str().ok_or_else(wrong)?;
    let bytes = (0..text.len() / 2)
        .map(|at| text.get(2 * at..2 * at + 2).and_then(|two| u8::from_str_radix(two, 16).ok()));
    let frame: Option<Vec<u8>> = bytes.collect();
    let port = copy["port"].as_u64().ok_or_else(wrong)?;
    Ok((copy["at"].as_u64().ok_or_else(wrong)?, port as u32, frame.ok_or_else(wrong)?))
}

//! Clients on the command line: one that plays a file, one that records.

use crate::{Complaint, Report};
use lastmeter_audio::FILE_MAX;
use lastmeter_audio::client::Client;
use lastmeter_audio::playout::Conceal;
use lastmeter_audio::server::delay;
use lastmeter_linux::files;
use lastmeter_wire::wav;
use serde_json::json;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// The longest recording, in seconds.
const SECONDS_MAX: f64 = 600.0;

/// Which device, and who asks.
#[derive(clap::Args)]
pub(crate) struct Device {
    /// Where the device listens: 127.0.0.1:8560
    address: SocketAddr,
    /// Who asks
    #[arg(long, default_value = "")]
    token: String,
}

impl Device {
    fn place(&self, error: impl std::fmt::Display) -> Complaint {
        Complaint(format!("{}: {error}", self.address))
    }
}

#[derive(clap::Args)]
pub(crate) struct Play {
    #[command(flatten)]
    device: Device,
    /// A WAV file with samples of 16 bits, in the device's rate and channels
    file: PathBuf,
}

pub(crate) fn play(arguments: &Play) -> Result<Report, Complaint> {
    let Play { device, file } = arguments;
    let bytes = files::read(file, FILE_MAX)?;
    let (format, samples) = wav::parse(&bytes).map_err(|error| {
        let right = "`ffmpeg -i FILE -c:a pcm_s16le sound.wav` makes one that is played";
        Complaint(format!("{}: {error}; {right}", file.display()))
    })?;
    let mut client = Client::publish(device.address, &device.token, format)
        .map_err(|error| device.place(error))?;
    let sent = client.send(&samples).and_then(|packets| client.close().map(|()| packets));
    let packets = sent.map_err(|error| device.place(error))?;
    let frames = samples.len() / usize::from(format.channels);
    let seconds = frames as f64 / f64::from(format.rate);
    let text = format!("sent {seconds:.2} s of sound in {packets} packets\n");
    let json = json!({ "seconds": seconds, "frames": frames, "packets": packets });
    Ok(Report { text, json: vec![json], good: true })
}

#[derive(clap::Args)]
pub(crate) struct Record {
    #[command(flatten)]
    device: Device,
    /// For how long, from the first sound on
    #[arg(long, default_value_t = 10.0)]
    seconds: f64,
    /// Save here: a WAV file
    #[arg(long)]
    out: Option<PathBuf>,
    /// What packets may be late by
    #[arg(long, default_value = "60 ms", value_parser = delay)]
    delay: Duration,
    /// What is heard where a packet is missing: silence, or the last sound again
    #[arg(long, default_value = "silence", value_parser = ["silence", "repeat"])]
    conceal: String,
}

pub(crate) fn record(arguments: &Record) -> Result<Report, Complaint> {
    let Record { device, seconds, out, delay, conceal } = arguments;
    if !(*seconds > 0.0 && *seconds <= SECONDS_MAX) {
        return Err(Complaint(format!("--seconds {seconds}: more than 0, at most {SECONDS_MAX}")));
    }
    let conceal = if conceal == "repeat" { Conceal::Repeat } else { Conceal::Silence };
    let mut client =
        Client::listen(device.address, &device.token).map_err(|error| device.place(error))?;
    let format = client.format;
    let length = Duration::from_secs_f64(*seconds);
    // Ctrl-C ends a recording early: what was heard is kept.
    let ended = crate::signals()?;
    let heard = client.hear(length, *delay, conceal, &ended);
    let heard = heard.map_err(|error| device.place(error))?;
    // It has what was asked for, even if the device is gone.
    let _ = client.close();
    if let Some(path) = out {
        let samples = heard.samples.iter().flat_map(|sample| sample.to_le_bytes());
        let mut bytes = wav::header(format, heard.samples.len() as u32 * 2).to_vec();
        bytes.extend(samples);
        std::fs::write(path, bytes)
            .map_err(|error| Complaint(format!("{}: {error}", path.display())))?;
    }
    let (counts, loudest) = (heard.counts, heard.samples.iter().map(|it| it.unsigned_abs()).max());
    let since = if heard.is_whole { "mouth to ear" } else { "beyond the fastest packet" };
    let text = format!(
        "heard {:.2} s of L16/{}/{}: {} packets, {} lost, {} late, {:.1} ms concealed; \
         {since} {:.1} ms, of which {:.1} ms network\n",
        heard.seconds,
        format.rate,
        format.channels,
        counts.packets,
        counts.lost,
        counts.late,
        counts.concealed as f64 / f64::from(format.rate) * 1e3,
        heard.delay * 1e3,
        heard.network * 1e3,
    );
    let json = json!({
        "seconds": heard.seconds, "rate": format.rate, "channels": format.channels,
        "packets": counts.packets, "lost": counts.lost, "late": counts.late,
        "concealed": counts.concealed, "delay": heard.delay, "network": heard.network,
        "whole": heard.is_whole, "loudest": loudest, "drift_ppm": counts.drift(),
    });
    Ok(Report { text, json: vec![json], good: true })
}

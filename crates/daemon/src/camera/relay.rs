//! The usual chain beside our camera: `ffmpeg` encodes and publishes by RTSP, a relay passes it on, `ffmpeg` reads and
//! decodes. The relay is Debian's `rtsp-server-perl`; MediaMTX, which is more common, was not available.

use super::bench::{Running, fed};
use super::client::Seen;
use crate::Complaint;
use lastmeter_device::camera::frame::{Layout, Pixels};
use lastmeter_device::camera::pattern::read;
use lastmeter_device::camera::store::clock;
use std::io::Read;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Until each part of the chain has begun.
const PATIENCE: Duration = Duration::from_secs(20);

fn port() -> Result<String, Complaint> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port().to_string())
}

/// Latencies at the end of the chain. `None` if a part of it is not installed.
pub(super) fn relayed(
    seconds: f64,
    size: (u16, u16),
    rate: f64,
) -> Result<Option<Seen>, Complaint> {
    let (server, client) = (port()?, port()?);
    // RTP's ports are even.
    let first = UdpSocket::bind("127.0.0.1:0")?.local_addr()?.port() & !1;
    let mut command = Command::new("rtsp-server-perl");
    command
        .args(["--serverport", &server, "--clientport", &client])
        .args(["--rtp_start_port", &first.to_string(), "--loglevel", "0"])
        .args(["--client_listen_address", "127.0.0.1", "--source_listen_address", "127.0.0.1"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let Ok(relay) = command.spawn() else { return Ok(None) };
    let _relay = Running(relay);
    let began = Instant::now();
    while TcpStream::connect(format!("127.0.0.1:{server}")).is_err() {
        if began.elapsed() > PATIENCE {
            return Err(Complaint("rtsp-server-perl did not begin".to_owned()));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let to = format!("rtsp://127.0.0.1:{server}/camera");
    // What RTP wants of a JPEG: the usual Huffman tables, and two of quantization.
    let jpeg = ["-c:v", "mjpeg", "-huffman", "default", "-force_duplicated_matrix", "1"];
    let rest = ["-q:v", "4", "-pix_fmt", "yuvj420p", "-f", "rtsp", "-rtsp_transport", "udp", &to];
    let Some(feeder) = fed(&[&jpeg[..], &rest].concat(), size, rate)? else { return Ok(None) };
    let seen = watched(&format!("rtsp://127.0.0.1:{client}/camera"), seconds, size);
    feeder.end();
    seen.map(Some)
}

/// What `ffmpeg` decodes of an address, after a second.
fn watched(address: &str, seconds: f64, (w, h): (u16, u16)) -> Result<Seen, Complaint> {
    let began = Instant::now();
    // The relay refuses readers until the source has come.
    loop {
        let mut command = Command::new("ffmpeg");
        command
            .args(["-nostdin", "-loglevel", "quiet", "-fflags", "nobuffer", "-flags", "low_delay"])
            .args(["-probesize", "32", "-analyzeduration", "0", "-reorder_queue_size", "0"])
            .args(["-rtsp_transport", "udp", "-i", address, "-an", "-vsync", "passthrough"])
            .args(["-f", "rawvideo", "-pix_fmt", "rgb24", "pipe:1"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut reader = Running(command.spawn()?);
        let mut out = reader.0.stdout.take().ok_or("ffmpeg has no output")?;
        let mut pixels = Pixels::new(Layout::Colour, w, h);
        let (mut seen, mut first) = (Seen::default(), None);
        while out.read_exact(&mut pixels.bytes).is_ok() {
            let since = first.get_or_insert_with(Instant::now).elapsed();
            let warm = Duration::from_secs(1);
            if since > warm
                && let Some((_, taken)) = read(&pixels)
            {
                seen.latencies.push(clock().saturating_sub(taken) as f64 / 1e6);
                seen.frames += 1;
            }
            seen.seconds = since.saturating_sub(warm).as_secs_f64();
            if seen.seconds > seconds {
                seen.latencies.sort_by(f64::total_cmp);
                return Ok(seen);
            }
        }
        if began.elapsed() > PATIENCE {
            return Err(Complaint("the relay gave no pictures".to_owned()));
        }
    }
}

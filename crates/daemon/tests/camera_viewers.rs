//! A camera as others' programs see it: `ffplay`, Frigate's way of calling `ffmpeg`, GStreamer; and for how long they
//! can.
//! OpenCV and Chromium are in `python/tests/test_camera.py`.

use super::attempts::in_time;
use super::camera::{camera, has_ffmpeg, start, tried, until};
use super::display::x_server;
use super::said;
use lastmeter_device::camera::encode::from_jpeg;
use lastmeter_device::camera::frame::{Layout, Pixels};
use lastmeter_device::camera::pattern::read;
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;
use x11rb::connection::Connection;
use x11rb::protocol::xproto::{ConnectionExt as _, ImageFormat};

/// What is on an X screen, from its upper left corner.
fn grab(screen: &str, width: u16, height: u16) -> Pixels {
    let (x, number) = x11rb::connect(Some(screen)).unwrap();
    let root = x.setup().roots[number].root;
    let image = x.get_image(ImageFormat::Z_PIXMAP, root, 0, 0, width, height, !0).unwrap();
    let data = image.reply().unwrap().data;
    let mut pixels = Pixels::new(Layout::Colour, width, height);
    for (to, from) in pixels.bytes.chunks_mut(3).zip(data.chunks(4)) {
        to.copy_from_slice(&[from[2], from[1], from[0]]);
    }
    pixels
}

/// `ffplay` shows the stream: the numbers in the pictures on its screen go on.
#[test]
fn ffplay_shows_it() {
    let knows = Command::new("ffplay").arg("-version").output().is_ok();
    let server = x_server();
    let Some((_server, screen)) = server.filter(|_| knows) else {
        println!("SKIP: no ffplay, or no Xvfb");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let (_running, viewers, _) = start(folder.path(), "size = '320x200'\nrate = 20\n");
    for address in [format!("rtsp://{viewers}/"), format!("http://{viewers}/stream.mjpg")] {
        let mut player = Command::new("ffplay")
            .args(["-loglevel", "error", "-nostats", "-noborder", "-left", "0", "-top", "0"])
            .args(["-x", "320", "-y", "200", &address])
            .env("DISPLAY", &screen)
            .env("SDL_VIDEODRIVER", "x11")
            .env("SDL_RENDER_DRIVER", "software")
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let mut numbers: Vec<u32> = Vec::new();
        until(&format!("ffplay shows five pictures of {address}"), || {
            assert!(player.try_wait().unwrap().is_none(), "ffplay ended");
            let number = read(&grab(&screen, 320, 200)).map(|(number, _)| number);
            numbers.extend(number.filter(|number| numbers.last() != Some(number)));
            numbers.len() >= 5
        });
        player.kill().unwrap();
        player.wait().unwrap();
        assert!(numbers.is_sorted(), "{numbers:?}");
        // Nothing of it stays on the screen.
        until("the window is gone", || read(&grab(&screen, 320, 200)).is_none());
    }
}

/// Frigate has one `ffmpeg` read a camera, with these arguments of its `preset-rtsp-generic`: raw pictures for its
/// detector on standard output, and the stream unchanged into files of some seconds.
#[test]
fn frigate_reads_it() {
    if !has_ffmpeg() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (_running, viewers, _) = start(folder.path(), "size = '320x240'\nrate = 20\n");
    let output = Command::new("ffmpeg")
        .args(["-hide_banner", "-loglevel", "warning", "-nostdin"])
        .args(["-avoid_negative_ts", "make_zero", "-fflags", "+genpts+discardcorrupt"])
        .args(["-rtsp_transport", "tcp", "-timeout", "5000000"])
        .args(["-use_wallclock_as_timestamps", "1", "-i", &format!("rtsp://{viewers}/")])
        .args(["-t", "5", "-f", "segment", "-segment_time", "2", "-segment_format", "mp4"])
        .args(["-reset_timestamps", "1", "-c", "copy", "-an", "record-%02d.mp4"])
        .args(["-t", "5", "-r", "5", "-vf", "fps=5,scale=320:240", "-threads", "2"])
        .args(["-f", "rawvideo", "-pix_fmt", "yuv420p", "pipe:"])
        .current_dir(folder.path())
        .output()
        .unwrap();
    said(&std::process::Output { stdout: Vec::new(), ..output.clone() }, 0);
    let detected = output.stdout.len() / (320 * 240 * 3 / 2);
    assert!((20..=26).contains(&detected), "5 a second for 5 s: {detected}");
    let mut recorded = 0;
    for number in 0..3 {
        let file = folder.path().join(format!("record-{number:02}.mp4"));
        let told = Command::new("ffprobe")
            .args(["-loglevel", "error", "-count_packets", "-of", "csv=p=0", "-show_entries"])
            .arg("stream=codec_name,width,height,nb_read_packets")
            .arg(&file)
            .output();
        let told = said(&told.unwrap(), 0);
        let count = told.trim().strip_prefix("mjpeg,320,240,");
        recorded += count.unwrap_or_else(|| panic!("{told}")).parse::<usize>().unwrap();
    }
    // A busy machine sends fewer, and none twice.
    assert!((20..=103).contains(&recorded), "20 a second for 5 s: {recorded}");
}

#[test]
fn gstreamer_reads_it() {
    let knows = |element: &str| {
        let found = Command::new("gst-inspect-1.0").arg(element).output();
        found.is_ok_and(|it| it.status.success())
    };
    let elements = ["rtspsrc", "rtpjpegdepay", "jpegdec", "souphttpsrc", "multipartdemux"];
    if let Some(missing) = elements.iter().find(|element| !knows(element)) {
        println!("SKIP: GStreamer has no {missing}");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (_running, viewers, _) = start(folder.path(), "size = '320x240'\nrate = 20\n");
    let end = "jpegdec ! identity eos-after=11 ! videoconvert ! video/x-raw,format=GRAY8 ! filesink location";
    let rtsp = format!("rtspsrc location=rtsp://{viewers}/ latency=0 ! rtpjpegdepay ! {end}");
    let http =
        format!("souphttpsrc location=http://{viewers}/stream.mjpg ! multipartdemux ! {end}");
    for (name, pipeline) in [("rtsp", rtsp), ("http", http)] {
        let file = folder.path().join(name);
        let output = Command::new("timeout")
            .args(["60", "gst-launch-1.0", "-q"])
            .args(format!("{pipeline}={}", file.display()).split(' '))
            .output();
        said(&output.unwrap(), 0);
        let frames = std::fs::metadata(&file).unwrap().len() / (320 * 240);
        assert!((10..=11).contains(&frames), "{name}: {frames}");
    }
}

/// Kilobytes that a process holds.
fn resident(process: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// How far the time stamps of a film went astray: what they say of its length, less what the clock in the first and in
/// the last picture says, and that length; in seconds.
fn drift(film: &Path) -> (f64, f64) {
    let stamps = Command::new("ffprobe")
        .args(["-loglevel", "error", "-show_entries", "packet=pts_time", "-of", "csv=p=0"])
        .arg(film)
        .output();
    let stamps = said(&stamps.unwrap(), 0);
    let stamps: Vec<f64> =
        stamps.lines().filter_map(|it| it.trim_matches(',').parse().ok()).collect();
    let pictures = Command::new("ffmpeg")
        .args(["-nostdin", "-loglevel", "error", "-i"])
        .arg(film)
        .args(["-c", "copy", "-f", "mjpeg", "pipe:"])
        .output()
        .unwrap()
        .stdout;
    let find = |from: usize, mark: [u8; 2]| {
        pictures[from..].windows(2).position(|pair| pair == mark).map(|at| at + from)
    };
    let last = pictures.windows(2).rposition(|pair| pair == [0xff, 0xd8]).unwrap();
    let clock = |start: usize| {
        let end = find(start, [0xff, 0xd9]).expect("a picture has an end") + 2;
        read(&from_jpeg(&pictures[start..end]).unwrap()).expect("its clock can be read").1
    };
    let length = (clock(last) - clock(0)) as f64 / 1e6;
    (stamps.last().unwrap() - stamps.first().unwrap() - length, length)
}

/// A reader by RTSP, closed loops and an open one for this long: the time stamps stay with the clock in the pictures,
/// the camera holds no more memory at the end, and the pictures are as fresh.
fn endures(seconds: f64) {
    let folder = tempfile::tempdir().unwrap();
    let (running, viewers, receivers) = start(folder.path(), "");
    let watch = |seconds: f64, open: bool| -> Value {
        let length = seconds.to_string();
        let mut arguments = vec!["watch", &receivers, "--seconds", &length, "--json"];
        arguments.extend(open.then_some("--open"));
        let told = said(&camera(folder.path(), &arguments), 0);
        serde_json::from_str(told.lines().next().unwrap()).unwrap()
    };
    let before = watch(seconds * 0.1, false);
    let length = (seconds * 0.8).to_string();
    let reader = has_ffmpeg().then(|| {
        let mut command = Command::new("ffmpeg");
        command
            .args(["-nostdin", "-loglevel", "error", "-rtsp_transport", "tcp", "-t", &length])
            .args(["-i", &format!("rtsp://{viewers}/"), "-c", "copy", "film.mkv"])
            .current_dir(folder.path());
        (Instant::now(), command.spawn().unwrap())
    });
    let held = resident(running.child.id());
    let middle = watch(seconds * 0.8, true);
    if let Some((began, mut reader)) = reader {
        assert!(reader.wait().unwrap().success());
        let took = began.elapsed().as_secs_f64();
        let (astray, lasts) = drift(&folder.path().join("film.mkv"));
        println!(
            "the film lasts {lasts:.2} s, and was read in {took:.2} s; {:.1} ms astray",
            astray * 1e3
        );
        assert!(lasts > seconds * 0.7, "{lasts}");
        // A frame time, whatever the length.
        assert!(astray.abs() < 1.0 / 30.0, "{astray} s in {lasts} s");
    }
    let now = resident(running.child.id());
    let after = watch(seconds * 0.1, false);
    println!("{held} kB, then {now} kB; {before}; {middle}; {after}");
    assert!(now < held + held / 5 + 4096, "{held} kB, then {now} kB");
    for seen in [&before, &middle, &after] {
        in_time!(seen["median"].as_f64() < Some(0.2), "{seen}");
    }
}

#[test]
fn a_camera_neither_grows_nor_drifts_for_a_while() {
    tried(|| endures(6.0));
}

#[test]
#[ignore = "ten minutes, or LASTMETER_SOAK seconds"]
fn a_camera_neither_grows_nor_drifts() {
    let seconds = std::env::var("LASTMETER_SOAK").map_or(600.0, |text| text.parse().unwrap());
    tried(|| endures(seconds));
}

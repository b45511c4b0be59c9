//! A disk that takes as long as another one: its reads beside the model's, over NBD (N-39).
//!
//! Tolerances, set before the first run: a mean within a tenth of the model's, flash within a quarter (the kernel wakes
//! a thread late); no read earlier than the model can be.

use super::attempts::in_time;
use super::camera::tried;
use super::display::{Running, until};
use super::{PROGRAM, said};
use lastmeter_base::{Duration as Time, Rate, Stream, Time as Instant};
use lastmeter_host::disk::{Disk, Geometry, Options, Seek};
use lastmeter_wire::nbd::{Command as Ask, Kind, Option as Choice, Request};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};

/// The disk of 1995, as its file describes it.
fn turning() -> Disk {
    let ms = |ms: f64| Time::from_secs_f64(ms / 1000.0);
    let geometry = Geometry {
        cylinders: 1962,
        heads: 19,
        sectors: vec![108, 90, 72],
        turn: ms(14.99),
        switch: ms(1.0),
    };
    let seek = Seek { near: ms(3.24), root: ms(0.4), far: 383, long: ms(8.0), cylinder: ms(0.008) };
    let (controller, bus) = (ms(2.2), Rate::from_mbit(80));
    Disk::new(Options { geometry, seek, controller, bus, cache: 256 })
}

/// Bytes of the served disk.
const SIZE: u64 = 1600 << 20;

/// A disk with this model, and a connection to it.
fn serve(model: &str) -> (Running, TcpStream, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let text = format!("file = 'disk.img'\nsize = '1600 MiB'\nlisten = '127.0.0.1:{port}'\n");
    std::fs::write(folder.path().join("disk.toml"), text).unwrap();
    let mut command = Command::new(PROGRAM);
    command.args(["disk", "run", "disk.toml", "--model", model]);
    let child = command.current_dir(folder.path()).stdout(Stdio::null()).spawn().unwrap();
    let running = Running(child);
    let mut stream =
        until("the disk did not begin", || TcpStream::connect(("127.0.0.1", port)).ok());
    stream.set_nodelay(true).unwrap();
    stream.read_exact(&mut [0; 18]).unwrap();
    let option = Choice { kind: Kind::EXPORT_NAME, length: 0 };
    stream.write_all(&[&[0, 0, 0, 3][..], &option.emit()].concat()).unwrap();
    let mut head = [0; 10];
    stream.read_exact(&mut head).unwrap();
    assert_eq!(head[..8], SIZE.to_be_bytes());
    (running, stream, folder)
}

/// Reads, and how long that took in seconds.
fn read(stream: &mut TcpStream, offset: u64, length: u32) -> f64 {
    let began = std::time::Instant::now();
    let request = Request { flags: 0, command: Ask::READ, cookie: 1, offset, length };
    stream.write_all(&request.emit()).unwrap();
    let mut answer = vec![0; 16 + length as usize];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer[4..8], [0; 4]);
    began.elapsed().as_secs_f64()
}

/// The mean time of reads at these places, one after the other, here and in the model.
fn beside(stream: &mut TcpStream, places: &[u64], length: u32) -> (f64, f64) {
    let live: f64 = places.iter().map(|at| read(stream, *at, length)).sum();
    let (mut model, mut now) = (turning(), Instant::START);
    for at in places {
        now = model.read(now, at / 512, u64::from(length) / 512).done;
    }
    let count = places.len() as f64;
    (live / count, now.since_start().as_secs_f64() / count)
}

#[test]
fn a_file_behaves_like_a_disk_of_1995_n_39() {
    tried(|| {
        let (_disk, mut stream, _folder) = serve("1995");
        let mut random = Stream::new(1, "places");
        let places: Vec<u64> = (0..100).map(|_| random.below(SIZE / 4096) * 4096).collect();
        let (live, model) = beside(&mut stream, &places, 4096);
        println!("random: {:.2} ms, the model {:.2} ms", live * 1e3, model * 1e3);
        // The outermost and the innermost zone, one read after the other.
        let run = |from: u64| -> Vec<u64> { (0..32).map(|at| from + at * 65536).collect() };
        let (outer, outer_model) = beside(&mut stream, &run(0), 65536);
        let (inner, inner_model) = beside(&mut stream, &run(SIZE - (4 << 20)), 65536);
        println!("zones: {:.3}, the model {:.3}", inner / outer, inner_model / outer_model);
        // The controller, the sectors and the bus are the least that a read takes.
        let least = 0.0022 + 8.0 / 108.0 * 0.01499;
        let far = [0, SIZE / 2, SIZE / 4].map(|at| read(&mut stream, at, 4096));
        assert!(far.iter().all(|time| *time > least), "{far:?}");
        for (what, live, model) in [
            ("random reads", live, model),
            ("outer zone", outer, outer_model),
            ("inner zone", inner, inner_model),
        ] {
            in_time!((live / model - 1.0).abs() < 0.1, "{what}: {live} s, the model {model} s");
        }
    });
}

#[test]
fn a_file_behaves_like_an_nvme_drive_n_39() {
    tried(|| {
        let (_disk, mut stream, folder) = serve("flash");
        // The place is in the kernel's memory: what it takes is the model's.
        for at in 0..1600 {
            read(&mut stream, at % 16 * 4096, 4096);
        }
        let mut show = Command::new(PROGRAM);
        show.args(["disk", "show", "disk.toml", "--json"]).current_dir(folder.path());
        let told = said(&show.output().unwrap(), 0);
        let ledger: serde_json::Value = serde_json::from_str(&told).unwrap();
        let stages = ledger["paths"][0]["stages"].as_array().unwrap();
        let medium = stages.iter().find(|stage| stage["name"] == "medium").unwrap();
        let mean = medium["service"]["mean"].as_f64().expect("a mean");
        // A read of a page, and 4 KiB at 3.2 GB/s.
        let model = 85e-6 + 4096.0 / 3.2e9;
        assert!(mean >= model, "{medium}");
        in_time!(mean < 1.25 * model, "{mean} s, the model {model} s");
    });
}

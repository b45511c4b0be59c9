//! `lastmeter disk run --model`: a file that takes as long as a disk with an arm, or as flash (N-39).
//!
//! * `[disk]`: the arm, platters and cache of experiments' `disk` (`lastmeter kinds disk`), with its keys.
//! * `[flash]`: a read takes `read` at one of `units` for each `page`, and its time at `read-rate`; a write takes
//!   `write`, and no less than its time at `write-rate` behind those before it.
//!
//! Deviations: a write to a disk with an arm takes as long as a read, short where the disk is reading ahead. Discarding
//! and zeroing take no time of the model. Requests of one connection are served one after another, so several at once
//! need several connections.

use crate::Complaint;
use lastmeter_base::{Bytes, Duration, Quantity, Rate, Time};
use lastmeter_device::disk::timing::{Access, Timing};
use lastmeter_host::disk::{Disk, Geometry, Options, SECTOR, Seek};
use lastmeter_linux::files;
use serde::Deserialize;
use std::path::Path;

/// Models that come with the program.
const MODELS: [(&str, &str); 2] =
    [("1995", include_str!("model/1995.toml")), ("flash", include_str!("model/flash.toml"))];
/// Limits on a model's numbers: what the machine counts with.
const COUNT_MAX: u64 = 1 << 24;
const UNITS_MAX: usize = 4096;
const TIME_MAX: Duration = Duration::from_secs(10);
/// The longest file of a model.
const FILE_MAX: usize = 1 << 20;

/// A file with a model.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct File {
    what: String,
    source: String,
    disk: Option<Arm>,
    flash: Option<Flash>,
}

/// The keys of the kind `disk`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Arm {
    cylinders: u64,
    heads: u64,
    sectors: Vec<u64>,
    turn: String,
    switch: String,
    near: String,
    root: String,
    far: u64,
    long: String,
    cylinder: String,
    controller: String,
    bus: String,
    cache: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Flash {
    read: String,
    write: String,
    units: usize,
    page: String,
    read_rate: String,
    write_rate: String,
    size: String,
}

fn time(key: &str, text: &str) -> Result<Duration, String> {
    let time = Duration::parse(text).map_err(|error| format!("{key}: {error}"))?;
    if time > TIME_MAX {
        return Err(format!("{key}: {text:?}: at most {TIME_MAX}"));
    }
    Ok(time)
}

fn rate(key: &str, text: &str) -> Result<Rate, String> {
    let rate = Rate::parse(text).map_err(|error| format!("{key}: {error}"))?;
    if rate < Rate::from_mbit(1) {
        return Err(format!("{key}: {text:?}: at least 1 Mbit/s"));
    }
    Ok(rate)
}

fn bytes(key: &str, text: &str) -> Result<u64, String> {
    Ok(Bytes::parse(text).map_err(|error| format!("{key}: {error}"))?.0)
}

impl Arm {
    fn options(&self) -> Result<Options, String> {
        let zones = self.sectors.len() as u64;
        let counts = [self.cylinders, self.heads].into_iter().chain(self.sectors.iter().copied());
        if zones == 0 || zones > self.cylinders || counts.clone().any(|n| n == 0 || n > 1 << 16) {
            return Err("cylinders, heads, sectors: from 1 to 65536, and no more zones than \
                        cylinders"
                .to_owned());
        }
        let turn = time("turn", &self.turn)?;
        if turn.is_zero() {
            return Err("turn: it never turns; write turn = \"14.99 ms\"".to_owned());
        }
        let cache = self.cache.as_deref().map_or(Ok(0), |text| bytes("cache", text))?;
        Ok(Options {
            geometry: Geometry {
                cylinders: self.cylinders,
                heads: self.heads,
                sectors: self.sectors.clone(),
                turn,
                switch: time("switch", &self.switch)?,
            },
            seek: Seek {
                near: time("near", &self.near)?,
                root: time("root", &self.root)?,
                far: self.far.min(COUNT_MAX),
                long: time("long", &self.long)?,
                cylinder: time("cylinder", &self.cylinder)?,
            },
            controller: time("controller", &self.controller)?,
            bus: rate("bus", &self.bus)?,
            cache: (cache / SECTOR.0).min(COUNT_MAX),
        })
    }
}

/// A disk with an arm.
struct Turning(Disk);

impl Timing for Turning {
    fn done(&mut self, now: Time, access: Access) -> Time {
        let first = access.at / SECTOR.0;
        let end = (access.at + access.length).div_ceil(SECTOR.0);
        self.0.read(now, first, end - first).done
    }
}

/// Flash.
struct Chips {
    read: Duration,
    write: Duration,
    page: u64,
    /// When each unit is free.
    units: Vec<Time>,
    /// When all reads have left, and all writes are on their way.
    rates: [(Rate, Time); 2],
}

impl Timing for Chips {
    fn done(&mut self, now: Time, access: Access) -> Time {
        let (rate, busy) = &mut self.rates[usize::from(access.write)];
        let passing = rate.time_for(Bytes(access.length));
        if access.write {
            *busy = now.max(*busy) + passing;
            return (*busy).max(now + self.write);
        }
        let pages = (access.at + access.length).div_ceil(self.page) - access.at / self.page;
        let mut there = now;
        for _ in 0..pages {
            let unit = self.units.iter_mut().min().expect("there is a unit");
            *unit = now.max(*unit) + self.read;
            there = there.max(*unit);
        }
        // The first page may leave while others are still read.
        *busy = (now + self.read).max(*busy) + passing;
        (*busy).max(there)
    }
}

/// A model, ready for a disk of some size.
pub(crate) struct Model {
    what: String,
    source: String,
    size: u64,
    parts: Parts,
}

enum Parts {
    Turning(Options),
    Chips { read: Duration, write: Duration, page: u64, units: usize, rates: [Rate; 2] },
}

impl Model {
    /// A model of this name, or of a file.
    pub(crate) fn of(name: &str) -> Result<Model, Complaint> {
        let own = MODELS.iter().find(|(own, _)| *own == name).map(|(_, text)| (*text).to_owned());
        let text = match own {
            Some(text) => text,
            None => {
                let text = files::read(Path::new(name), FILE_MAX).and_then(|bytes| {
                    String::from_utf8(bytes).map_err(|_| format!("{name}: it is not text"))
                });
                text.map_err(|why| {
                    let names = MODELS.map(|(name, _)| name).join(", ");
                    Complaint(format!("model {why}; there are {names}, or give a file"))
                })?
            }
        };
        Model::parse(&text).map_err(|why| Complaint(format!("model {name}: {why}")))
    }
    fn parse(text: &str) -> Result<Model, String> {
        let file: File = toml::from_str(text).map_err(|error| error.to_string())?;
        let (size, parts) = match (&file.disk, &file.flash) {
            (Some(arm), None) => {
                let options = arm.options()?;
                (options.geometry.capacity() * SECTOR.0, Parts::Turning(options))
            }
            (None, Some(flash)) => {
                let page = bytes("page", &flash.page)?;
                if page == 0 || flash.units == 0 || flash.units > UNITS_MAX {
                    return Err(format!("page, units: at least 1, and at most {UNITS_MAX} units"));
                }
                let (read, write) = (time("read", &flash.read)?, time("write", &flash.write)?);
                let rates =
                    [rate("read-rate", &flash.read_rate)?, rate("write-rate", &flash.write_rate)?];
                let parts = Parts::Chips { read, write, page, units: flash.units, rates };
                (bytes("size", &flash.size)?, parts)
            }
            _ => return Err("give [disk] or [flash]".to_owned()),
        };
        Ok(Model { what: file.what, source: file.source, size, parts })
    }
    /// What it is, and where its numbers are from.
    pub(crate) fn words(&self) -> String {
        format!("{} ({})", self.what, self.source)
    }
    /// It at rest, for a disk of so many bytes.
    pub(crate) fn timing(&self, size: u64) -> Result<Box<dyn Timing>, String> {
        if size > self.size {
            return Err(format!("the model has {}, the disk {size} B", Bytes(self.size)));
        }
        Ok(match &self.parts {
            Parts::Turning(options) => Box::new(Turning(Disk::new(options.clone()))),
            Parts::Chips { read, write, page, units, rates } => Box::new(Chips {
                read: *read,
                write: *write,
                page: *page,
                units: vec![Time::START; *units],
                rates: rates.map(|rate| (rate, Time::START)),
            }),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lastmeter_base::Stream;

    fn model(name: &str) -> Box<dyn Timing> {
        Model::of(name).ok().expect("it comes with the program").timing(1 << 30).expect("it fits")
    }

    /// Reads at random places, one after the other: the mean time of each, in seconds.
    fn random_reads(model: &mut dyn Timing, length: u64, within: u64) -> f64 {
        const READS: u64 = 4000;
        let (mut random, mut now) = (Stream::new(1, "places"), Time::START);
        for _ in 0..READS {
            let at = random.below(within / length) * length;
            now = model.done(now, Access { write: false, at, length });
        }
        now.since_start().as_secs_f64() / READS as f64
    }

    /// Flash: what its data sheet says, by itself and with many at once; a disk: milliseconds.
    #[test]
    fn n_39_models_take_what_their_sources_say() {
        let mut flash = model("flash");
        let one = random_reads(&mut *flash, 4096, 1 << 30);
        assert!((one / 86.3e-6 - 1.0).abs() < 0.01, "85 us and the bus: {one}");
        // Enough at once: 279,500 reads of 4 KB a second, within 3 %; the same of a rate of 3.2 GB/s.
        let (mut flash, count) = (model("flash"), 100_000);
        let last = (0..count).map(|at| {
            flash.done(Time::START, Access { write: false, at: at * 16384, length: 4096 })
        });
        let rate = count as f64 / last.max().expect("some").since_start().as_secs_f64();
        assert!((rate / 279_500.0 - 1.0).abs() < 0.03, "{rate}");
        let mut flash = model("flash");
        let last = (0..1000).map(|at| {
            flash.done(Time::START, Access { write: false, at: at << 20, length: 1 << 20 })
        });
        let rate = 1000.0 * 1_048_576.0 / last.max().expect("some").since_start().as_secs_f64();
        assert!((rate / 3.2e9 - 1.0).abs() < 0.03, "{rate}");
        // Writes: 20 us, then 0.6 GB/s.
        let mut flash = model("flash");
        let write = Access { write: true, at: 0, length: 4096 };
        let first = flash.done(Time::START, write).since_start();
        assert_eq!(first, Duration::from_us(20));
        let last = (0..10_000).map(|_| flash.done(Time::START, write)).max().expect("some");
        let rate = 10_001.0 * 4096.0 / last.since_start().as_secs_f64();
        assert!((rate / 0.6e9 - 1.0).abs() < 0.01, "{rate}");
        // A disk of 1995: controller, part of a seek over a gigabyte of it, half a turn, the sectors.
        let one = random_reads(&mut *model("1995"), 4096, 1 << 30);
        assert!((0.015..0.025).contains(&one), "{one}");
    }

    #[test]
    fn what_is_no_model_is_said() {
        let wrong = |text: &str| Model::parse(text).err().expect("wrong");
        let head = "what = 'x'\nsource = 'y'\n";
        assert!(wrong(head).contains("[disk] or [flash]"));
        let good = MODELS[0].1;
        for (from, to, said) in [
            ("turn = \"14.99 ms\"", "turn = \"0 s\"", "never turns"),
            ("[108, 90, 72]", "[]", "no more zones"),
            ("[108, 90, 72]", "[0]", "from 1 to 65536"),
            ("heads = 19", "heads = 0", "from 1 to 65536"),
            ("\"2.2 ms\"", "\"11 s\"", "at most"),
            ("\"80 Mbit/s\"", "\"999 kbit/s\"", "at least"),
            ("heads = 19", "arms = 19", "unknown field"),
        ] {
            let why = wrong(&good.replace(from, to));
            assert!(why.contains(said), "{to}: {why}");
        }
        let model = Model::parse(good).expect("sound");
        assert!(model.timing(2 << 30).err().expect("too large").contains("the model has"));
        assert!(Model::of("no such file").is_err());
        let Complaint(why) = Model::of("/dev/zero").err().expect("it does not end");
        assert!(why.contains("/dev/zero: more than 1048576 bytes"), "{why}");
    }
}

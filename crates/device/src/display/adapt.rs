//! The JPEG quality of a viewer whose updates queue: from what it asked for downwards while they are long on their way,
//! and upwards again when there is room.
//!
//! ```text
//! time of an update = what every update takes + bytes * cost      fitted to the last updates of a viewer
//! on its way = bytes * cost   > slow, and more is drawn meanwhile: poorer   < quick, several times: better
//! ```
//!
//! Only the second part gets shorter with fewer bytes: a viewer that draws slowly, or pauses, keeps its quality. As
//! long as all updates are of nearly the same size the parts cannot be told apart, and all of it counts as the link's;
//! what a poorer picture takes then tells them apart.
//!
//! | parameter | default | |
//! |---|---|---|
//! | `lowest` | 15 | the poorest quality |
//! | `slow` | 50 ms | an update longer on its way lowers the quality |
//! | `quick` | 20 ms | shorter ones raise it |
//! | `updates` | 5 | so many of them, one after another |
//! | `still` | 500 ms | what was sent as JPEG and has not changed since for so long is sent exactly; `never` |
//!
//! The defaults are our own choice: 20 updates a second look like motion, and twice the bytes stay below the limit.
//! A viewer that asks for no quality gets no JPEG, and none of this.

use lastmeter_base::Quantity;
use serde::Deserialize;
use std::time::Duration;

/// By so much the quality is lowered for each doubling of the limit, and raised at once.
const STEP: u8 = 10;
/// The share of what is known that the next update leaves, of the fit's sums.
const KEPT: f64 = 0.9;
/// Relative spread of sizes from which on the parts are told apart.
const SPREAD: f64 = 0.2;
/// After so many updates of a quality one is tried that is better by two steps: its bytes show what they cost now.
const TRY: u32 = 25;
/// Two updates, one after another, that take so many times as long as expected show that the link is another one; one
/// says nothing.
const SURPRISE: f64 = 2.0;

/// `[adapt]` of `display.toml`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Config {
    /// The poorest quality.
    pub lowest: Option<u8>,
    /// Above this time on its way an update lowers the quality.
    pub slow: Option<String>,
    /// Below this one updates raise it.
    pub quick: Option<String>,
    /// So many of them.
    pub updates: Option<u32>,
    /// After so long without a change an area is sent exactly; `never`.
    pub still: Option<String>,
}

/// The parameters.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The poorest quality.
    pub lowest: u8,
    /// Seconds above which the quality is lowered.
    pub slow: f64,
    /// Seconds below which it is raised.
    pub quick: f64,
    /// Updates that raise it.
    pub updates: u32,
    /// Time without a change after which an area is sent exactly.
    pub still: Option<Duration>,
}

impl Default for Settings {
    fn default() -> Settings {
        let still = Some(Duration::from_millis(500));
        Settings { lowest: 15, slow: 0.05, quick: 0.02, updates: 5, still }
    }
}

impl Config {
    /// The parameters.
    ///
    /// # Errors
    /// Which is wrong, and what would be right.
    pub fn settings(&self) -> Result<Settings, String> {
        let own = Settings::default();
        let seconds = |key: &str, text: &Option<String>, default: f64| match text {
            None => Ok(default),
            Some(text) => lastmeter_base::Duration::parse(text)
                .map(lastmeter_base::Duration::as_secs_f64)
                .map_err(|error| format!("adapt.{key}: {error}")),
        };
        let slow = seconds("slow", &self.slow, own.slow)?;
        let quick = seconds("quick", &self.quick, own.quick.min(slow))?;
        if quick > slow {
            return Err("adapt.quick: longer than `slow`".to_owned());
        }
        let lowest = self.lowest.unwrap_or(own.lowest);
        if !(1..=100).contains(&lowest) {
            return Err(format!("adapt.lowest: {lowest}: from 1 to 100"));
        }
        let still = match self.still.as_deref() {
            Some("never") => None,
            _ => {
                let default = own.still.map_or(0.0, |still| still.as_secs_f64());
                Some(Duration::from_secs_f64(seconds("still", &self.still, default)?))
            }
        };
        let updates = self.updates.unwrap_or(own.updates).max(1);
        Ok(Settings { lowest, slow, quick, updates, still })
    }
}

/// What updates take, fitted by a line; older ones count less and less.
#[derive(Default)]
struct Fit {
    count: f64,
    bytes: f64,
    time: f64,
    squares: f64,
    products: f64,
    /// Seconds of a byte.
    cost: f64,
    /// Whether the last one was a surprise.
    surprised: bool,
}

impl Fit {
    fn mean(&self, sum: f64) -> f64 {
        sum / self.count.max(1.0)
    }
    /// False if that says nothing.
    fn add(&mut self, bytes: f64, time: f64) -> bool {
        let fixed = self.mean(self.time) - self.cost * self.mean(self.bytes);
        let surprise = self.count > 0.0 && time > SURPRISE * (fixed + self.cost * bytes);
        if surprise && !std::mem::replace(&mut self.surprised, true) {
            return false;
        }
        if surprise {
            *self = Fit::default();
        }
        self.surprised = false;
        for (sum, more) in [
            (&mut self.count, 1.0),
            (&mut self.bytes, bytes),
            (&mut self.time, time),
            (&mut self.squares, bytes * bytes),
            (&mut self.products, bytes * time),
        ] {
            *sum = *sum * KEPT + more;
        }
        let (len, whole) = (self.mean(self.bytes), self.mean(self.time));
        let spread = self.mean(self.squares) - len * len;
        let most = whole / len.max(1.0);
        if spread > (SPREAD * len).powi(2) {
            let cost = (self.mean(self.products) - len * whole) / spread;
            self.cost = cost.clamp(0.0, most);
        } else {
            self.cost = if self.count <= 1.0 { most } else { self.cost.min(most) };
        }
        true
    }
}

/// What was sent in an update.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    /// Bytes.
    pub(super) bytes: usize,
    /// The quality, if any of it was JPEG.
    pub(super) quality: Option<u8>,
}

/// The quality of a viewer, and what it is told by.
#[derive(Default)]
pub(super) struct Adapt {
    settings: Settings,
    asked: Option<u8>,
    now: u8,
    /// Quick updates, one after another.
    quick: u32,
    /// Updates of this quality.
    same: u32,
    fit: Fit,
}

impl Adapt {
    pub(super) fn new(settings: Settings) -> Adapt {
        Adapt { settings, ..Adapt::default() }
    }
    /// The viewer asks for this quality, or for exact pictures.
    pub(super) fn ask(&mut self, quality: Option<u8>) {
        if quality != self.asked {
            (self.asked, self.now, self.quick) = (quality, quality.unwrap_or(0), 0);
        }
    }
    /// The quality of the next update.
    pub(super) fn quality(&self) -> Option<u8> {
        self.asked.map(|asked| asked.min(self.now))
    }
    /// The viewer has an update, which took so many seconds; more had been drawn meanwhile, or not.
    pub(super) fn done(&mut self, sent: Sent, seconds: f64, queued: bool) {
        if !self.fit.add(sent.bytes as f64, seconds) {
            return;
        }
        // Others say nothing of what this quality costs.
        let (Some(asked), true) = (self.asked, sent.quality == self.quality()) else { return };
        let way = self.fit.cost * sent.bytes as f64;
        let (lowest, before) = (self.settings.lowest.min(asked), self.now);
        self.quick = if way < self.settings.quick { self.quick + 1 } else { 0 };
        self.same += 1;
        if way > self.settings.slow && queued {
            let doublings = (way / self.settings.slow).log2().min(10.0) as u8;
            self.now = self.now.saturating_sub(STEP * (1 + doublings)).max(lowest);
        }
        let tries = self.same >= TRY;
        if self.quick >= self.settings.updates || tries {
            let step = if tries { 2 * STEP } else { STEP };
            self.now = self.now.saturating_add(step).min(asked);
        }
        if self.now != before {
            (self.quick, self.same) = (0, 0);
        }
    }
    /// Bytes that are `slow` on their way.
    pub(super) fn room(&self) -> usize {
        match self.fit.cost > 0.0 {
            true => (self.settings.slow / self.fit.cost) as usize,
            false => usize::MAX,
        }
    }
    /// Time without a change after which an area is sent exactly.
    pub(super) fn still(&self) -> Option<Duration> {
        self.settings.still
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of a picture of a quality, about as JPEG has it: twice as many for 20 more.
    fn bytes(quality: u8) -> usize {
        (2000.0 * 2f64.powf(f64::from(quality) / 20.0)) as usize
    }

    /// Updates one after another over a link, each of which the viewer keeps for `pause`; the quality at the end and the
    /// mean time of the last ten.
    fn film(adapt: &mut Adapt, count: usize, rate: f64, pause: f64, queued: bool) -> (u8, f64) {
        let mut times = Vec::new();
        for number in 0..count {
            let quality = adapt.quality().expect("asked for");
            // Pictures differ a little.
            let bytes = bytes(quality) * (95 + number * 7 % 11) / 100;
            let seconds = pause + bytes as f64 / rate;
            adapt.done(Sent { bytes, quality: Some(quality) }, seconds, queued);
            times.push(seconds);
        }
        let last = &times[times.len() - 10..];
        (adapt.quality().expect("asked for"), last.iter().sum::<f64>() / 10.0)
    }

    fn asking(quality: u8) -> Adapt {
        let mut adapt = Adapt::new(Settings::default());
        adapt.ask(Some(quality));
        adapt
    }

    #[test]
    fn a_slow_link_gets_a_poorer_picture_and_a_fast_one_what_it_asked_for() {
        for (rate, delay) in [(200e3, 0.001), (200e3, 0.1), (60e3, 0.03)] {
            let mut adapt = asking(90);
            let (quality, time) = film(&mut adapt, 60, rate, delay, true);
            let limit = if quality == 15 { 2.0 } else { 1.2 } * 0.05;
            assert!(quality < 90 && time - delay < limit, "{rate}: {quality}, {time} s");
            // It becomes fast.
            let (quality, _) = film(&mut adapt, 100, 50e6, delay, true);
            assert_eq!(quality, 90, "{rate}");
        }
        assert_eq!(film(&mut asking(90), 60, 50e6, 0.002, true).0, 90);
        assert_eq!(film(&mut asking(90), 60, 200e3, 0.002, false).0, 90, "nothing waits");
    }

    #[test]
    fn a_link_that_becomes_slow_is_noticed() {
        let mut adapt = asking(90);
        film(&mut adapt, 60, 50e6, 0.002, true);
        let (quality, time) = film(&mut adapt, 60, 200e3, 0.002, true);
        assert!(quality < 90 && time < 0.06, "{quality}, {time} s");
    }

    #[test]
    fn a_viewer_that_pauses_keeps_its_quality() {
        let mut adapt = asking(92);
        film(&mut adapt, 100, 50e6, 0.2, true);
        let mut poorest = 92;
        for _ in 0..50 {
            poorest = film(&mut adapt, 10, 50e6, 0.2, true).0.min(poorest);
        }
        assert_eq!(poorest, 92, "what it takes has nothing to do with bytes");
    }

    #[test]
    fn limits_are_kept() {
        let mut adapt = asking(30);
        assert_eq!(film(&mut adapt, 20, 1e3, 0.0, true).0, 15);
        assert!(adapt.room() > 20 && adapt.room() < 100, "{}", adapt.room());
        let mut adapt = asking(10);
        assert_eq!(film(&mut adapt, 50, 1e3, 0.0, true).0, 10, "poorer than the poorest");
        let mut off = Adapt::new(Settings { lowest: 100, ..Settings::default() });
        off.ask(Some(80));
        assert_eq!(film(&mut off, 50, 1e3, 0.0, true).0, 80);
        off.ask(None);
        assert_eq!(off.quality(), None);
        // Nothing makes it fail.
        for (bytes, seconds) in [(0, 0.0), (usize::MAX, 1e9), (1, 1e-12), (0, 5.0)] {
            adapt.done(Sent { bytes, quality: Some(10) }, seconds, true);
            assert!(adapt.quality().is_some_and(|quality| quality <= 10));
        }
    }

    #[test]
    fn mistakes_are_told() {
        let read = |text: &str| toml::from_str::<Config>(text).expect("TOML").settings();
        assert_eq!(read(""), Ok(Settings::default()));
        let own = read("slow = '10 ms'\nlowest = 40\nstill = 'never'").expect("sound");
        assert_eq!((own.slow, own.quick, own.lowest, own.still), (0.01, 0.01, 40, None));
        for (text, words) in [
            ("slow = '10'", "adapt.slow: `10` has no unit"),
            ("quick = '1 s'", "adapt.quick: longer than `slow`"),
            ("lowest = 0", "adapt.lowest: 0: from 1 to 100"),
        ] {
            let why = read(text).expect_err("a mistake");
            assert!(why.contains(words), "{why}");
        }
    }
}

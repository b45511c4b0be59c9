//! The arm, the platters and the cache of a disk, as a machine.

use lastmeter_base::{Bytes, Duration, Rate, Time};

/// Bytes in a sector.
pub const SECTOR: Bytes = Bytes(512);

/// Where sectors are, and how long they take to pass the heads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Cylinders, the outermost first.
    pub cylinders: u64,
    /// Tracks per cylinder.
    pub heads: u64,
    /// Sectors per track in each zone, the outermost first; all zones have the same number of cylinders.
    pub sectors: Vec<u64>,
    /// Time of a rotation.
    pub turn: Duration,
    /// Time from the end of a track to the beginning of the next, which is that far around the platter.
    pub switch: Duration,
}

/// A sector's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    cylinder: u64,
    /// Over all cylinders.
    track: u64,
    /// Within the track.
    sector: u64,
    /// Sectors of that track.
    of: u64,
}

impl Geometry {
    /// The first cylinder of a zone; of the zone after the last, the end.
    fn edge(&self, zone: u64) -> u64 {
        let zones = self.sectors.len() as u64;
        (u128::from(zone) * u128::from(self.cylinders) / u128::from(zones)) as u64
    }
    /// Sectors on the whole disk.
    pub fn capacity(&self) -> u64 {
        (0..self.sectors.len()).map(|zone| self.in_zone(zone)).sum()
    }
    fn in_zone(&self, zone: usize) -> u64 {
        let at = zone as u64;
        (self.edge(at + 1) - self.edge(at)) * self.heads * self.sectors[zone]
    }
    /// The place of a sector below the capacity.
    fn place(&self, mut sector: u64) -> Place {
        let mut zone = 0;
        while zone + 1 < self.sectors.len() && sector >= self.in_zone(zone) {
            sector -= self.in_zone(zone);
            zone += 1;
        }
        let of = self.sectors[zone];
        let track = self.edge(zone as u64) * self.heads + sector / of;
        Place { cylinder: track / self.heads, track, sector: sector % of, of }
    }
    /// How far around the platter a sector begins, in time.
    fn angle(&self, place: Place) -> u64 {
        let turn = u128::from(self.turn.as_ps());
        let along = u128::from(place.sector) * turn / u128::from(place.of);
        let skew = u128::from(place.track) * u128::from(self.switch.as_ps());
        ((along + skew) % turn.max(1)) as u64
    }
    /// From `now` until a sector comes under the head.
    fn until(&self, now: Time, place: Place) -> Duration {
        let turn = self.turn.as_ps().max(1);
        Duration::from_ps((self.angle(place) + turn - now.as_ps() % turn) % turn)
    }
    /// Time in which the head reads from one sector up to another, tracks changed on the way included.
    fn passing(&self, mut from: u64, to: u64) -> Duration {
        let mut time = Duration::ZERO;
        while from < to {
            let place = self.place(from);
            let run = (place.of - place.sector).min(to - from);
            time += self.turn.scale_ceil(run, place.of);
            from += run;
            if place.sector + run == place.of && from < to {
                time += self.switch;
            }
        }
        time
    }
}

/// How long the arm takes: a + b sqrt(d) up to `far` cylinders, c + e d beyond.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seek {
    /// a.
    pub near: Duration,
    /// b.
    pub root: Duration,
    /// The distance from which the arm coasts.
    pub far: u64,
    /// c.
    pub long: Duration,
    /// e.
    pub cylinder: Duration,
}

impl Seek {
    /// Over this many cylinders.
    pub fn over(&self, distance: u64) -> Duration {
        match distance {
            0 => Duration::ZERO,
            near if near < self.far => {
                // The root in thousandths.
                let root = (u128::from(near) * 1_000_000).isqrt() as u64;
                self.near + self.root.scale_ceil(root, 1000)
            }
            far => self.long + self.cylinder * far,
        }
    }
}

/// What a disk is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Its platters.
    pub geometry: Geometry,
    /// Its arm.
    pub seek: Seek,
    /// The controller's time for a read.
    pub controller: Duration,
    /// The bus between its cache and the host.
    pub bus: Rate,
    /// Sectors that it reads ahead; 0: no cache.
    pub cache: u64,
}

/// What a disk reads ahead: sectors from `first` on are in the cache, or will be.
#[derive(Clone, Copy, Debug)]
struct Ahead {
    first: u64,
    /// The head has been at this sector at this time, and reads on from there.
    next: u64,
    at: Time,
    /// The cache is full here.
    limit: u64,
}

/// A read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    /// When its data have reached the host.
    pub done: Time,
    /// Whether the cache had it, or was about to.
    pub hit: bool,
    /// The arm's time: the seek.
    pub seek: Duration,
    /// The platter's time until the first sector came: the rotational delay.
    pub turning: Duration,
}

/// A disk that serves one read after the other.
///
/// ```
/// use lastmeter_base::{Duration, Rate, Time};
/// use lastmeter_host::disk::{Disk, Geometry, Options, Seek};
/// let ms = Duration::from_ms;
/// let geometry =
///     Geometry { cylinders: 100, heads: 2, sectors: vec![60, 40], turn: ms(10), switch: ms(1) };
/// let seek = Seek { near: ms(2), root: ms(1), far: 50, long: ms(8), cylinder: Duration::from_us(10) };
/// let bus = Rate::from_mbit(80);
/// let mut disk = Disk::new(Options { geometry, seek, controller: Duration::ZERO, bus, cache: 0 });
/// // A whole track of the outermost zone: a turn.
/// assert_eq!(disk.read(Time::START, 0, 60).done, Time::START + ms(10));
/// ```
#[derive(Clone, Debug)]
pub struct Disk {
    options: Options,
    cylinder: u64,
    free: Time,
    ahead: Option<Ahead>,
}

impl Disk {
    /// At rest, its arm at the outermost cylinder. Panics if it has no cylinder, head, zone or sector, or does not
    /// turn.
    pub fn new(options: Options) -> Disk {
        let Geometry { cylinders, heads, sectors, turn, .. } = &options.geometry;
        assert!(*cylinders >= sectors.len() as u64 && *heads > 0, "each zone has tracks");
        assert!(
            !sectors.is_empty() && !sectors.contains(&0) && !turn.is_zero(),
            "tracks hold data"
        );
        Disk { options, cylinder: 0, free: Time::START, ahead: None }
    }
    /// Its platters.
    pub fn geometry(&self) -> &Geometry {
        &self.options.geometry
    }
    /// Reads sectors, which must lie on the disk, after all earlier reads.
    pub fn read(&mut self, now: Time, sector: u64, sectors: u64) -> Read {
        let begin = now.max(self.free) + self.options.controller;
        let bus = self.options.bus.time_for(SECTOR * sectors);
        let end = sector + sectors;
        let read = match self.ahead.filter(|ahead| ahead.first <= sector && end <= ahead.limit) {
            Some(ahead) => self.read_cache(begin, ahead, sector, end, bus),
            None => self.read_platter(begin, sector, end, bus),
        };
        self.free = read.done;
        read
    }

    fn read_cache(
        &mut self,
        begin: Time,
        ahead: Ahead,
        first: u64,
        end: u64,
        bus: Duration,
    ) -> Read {
        let geometry = &self.options.geometry;
        let there = match end > ahead.next {
            true => ahead.at + geometry.passing(ahead.next, end),
            false => ahead.at,
        };
        let limit = end + self.options.cache;
        let full = ahead.at + geometry.passing(ahead.next, ahead.limit);
        // A cache that was full resumes where the platter has turned to its end again.
        let (next, at) = match full < begin {
            true => {
                let last = ahead.limit.min(geometry.capacity() - 1);
                (ahead.limit, begin + geometry.until(begin, geometry.place(last)))
            }
            false => (ahead.next, ahead.at),
        };
        let limit = limit.min(geometry.capacity()).max(ahead.limit);
        self.cylinder = geometry.place(end - 1).cylinder;
        self.ahead = Some(Ahead { first, next, at, limit });
        let done = (begin + bus).max(there);
        Read { done, hit: true, seek: Duration::ZERO, turning: Duration::ZERO }
    }

    fn read_platter(&mut self, begin: Time, first: u64, end: u64, bus: Duration) -> Read {
        let geometry = &self.options.geometry;
        let place = geometry.place(first);
        let seek = self.options.seek.over(place.cylinder.abs_diff(self.cylinder));
        let turning = geometry.until(begin + seek, place);
        let there = begin + seek + turning + geometry.passing(first, end);
        self.cylinder = geometry.place(end - 1).cylinder;
        let limit = (end + self.options.cache).min(geometry.capacity());
        self.ahead =
            (self.options.cache > 0).then_some(Ahead { first, next: end, at: there, limit });
        Read { done: there.max(begin + bus), hit: false, seek, turning }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lastmeter_base::Stream;

    fn ms(ms: u64) -> Duration {
        Duration::from_ms(ms)
    }

    /// Two zones; a track of the outer one has 60 sectors, of the inner one 40.
    fn options(cache: u64) -> Options {
        let geometry = Geometry {
            cylinders: 100,
            heads: 2,
            sectors: vec![60, 40],
            turn: ms(10),
            switch: ms(1),
        };
        let seek = Seek {
            near: ms(2),
            root: ms(1),
            far: 50,
            long: ms(8),
            cylinder: Duration::from_us(10),
        };
        Options { geometry, seek, controller: Duration::ZERO, bus: Rate::from_gbit(1), cache }
    }

    fn rate(first: u64, cache: u64, sectors: u64) -> f64 {
        let mut disk = Disk::new(options(cache));
        let (mut now, mut read) = (Time::START, 0);
        let mut begun = Time::START;
        for block in 0..200 {
            now = disk.read(now, first + block * sectors, sectors).done;
            if block == 0 {
                begun = now;
            }
            read += if block == 0 { 0 } else { sectors };
        }
        read as f64 / (now - begun).as_secs_f64()
    }

    /// A track of n sectors passes in a turn and a switch: n / 11 ms.
    #[test]
    fn n_39_outer_zones_are_faster_by_the_ratio_of_their_sectors() {
        let (outer, inner) = (rate(0, 200, 10), rate(options(0).geometry.in_zone(0), 200, 10));
        assert!((outer / (60.0 / 0.011) - 1.0).abs() < 0.02, "{outer}");
        assert!((inner / (40.0 / 0.011) - 1.0).abs() < 0.02, "{inner}");
    }

    #[test]
    fn without_a_cache_the_next_sector_is_still_under_the_head_only_if_nothing_took_time() {
        let options = Options { controller: Duration::from_us(100), ..options(0) };
        let mut disk = Disk::new(options);
        let first = disk.read(Time::START, 0, 10);
        let second = disk.read(first.done, 10, 10);
        // During the controller's time the head misses the sector, and a turn is lost.
        let lost = (second.done - first.done).as_ps() as f64 / ms(10).as_ps() as f64;
        assert!((lost - 7.0 / 6.0).abs() < 0.02, "{lost} turns");
    }

    #[test]
    fn random_reads_take_a_seek_half_a_turn_and_their_sectors() {
        let mut disk = Disk::new(options(0));
        let mut random = Stream::new(1, "disk");
        let capacity = disk.geometry().capacity();
        let (mut now, mut seek, mut turning) = (Time::START, Duration::ZERO, Duration::ZERO);
        const READS: u64 = 20_000;
        for _ in 0..READS {
            let read = disk.read(now, random.below(capacity - 1), 1);
            assert!(!read.hit && read.turning < ms(10));
            (now, seek, turning) = (read.done, seek + read.seek, turning + read.turning);
        }
        let mean = |sum: Duration| sum.as_secs_f64() / READS as f64;
        assert!((mean(turning) / 0.005 - 1.0).abs() < 0.02, "{}", mean(turning));
        // By the formulas of the arm over all pairs of cylinders, each as likely as it has sectors.
        let (mut sum, mut weights) = (0.0, 0.0);
        for from in 0..100u64 {
            for to in 0..100u64 {
                let weight = |cylinder: u64| if cylinder < 50 { 60.0 } else { 40.0 };
                let share = weight(from) * weight(to);
                sum += share * options(0).seek.over(from.abs_diff(to)).as_secs_f64();
                weights += share;
            }
        }
        assert!(
            (mean(seek) / (sum / weights) - 1.0).abs() < 0.02,
            "{} {}",
            mean(seek),
            sum / weights
        );
    }

    #[test]
    fn every_sector_has_one_place_and_the_disk_is_as_large_as_its_zones() {
        let geometry = options(0).geometry;
        assert_eq!(geometry.capacity(), 50 * 2 * 60 + 50 * 2 * 40);
        let mut last = None;
        for sector in 0..geometry.capacity() {
            let place = geometry.place(sector);
            assert!(place.sector < place.of && place.cylinder < 100);
            let order = (place.track, place.sector);
            assert!(last.is_none_or(|last| last < order));
            last = Some(order);
        }
        assert_eq!(last, Some((199, 39)));
    }

    #[test]
    fn a_full_cache_waits_for_the_platter_and_nothing_is_read_before_it_passed() {
        let mut disk = Disk::new(options(30));
        let first = disk.read(Time::START, 0, 10);
        // Much later: the next 30 sectors are there, and the ones behind them are not.
        let later = first.done + ms(500);
        let second = disk.read(later, 10, 30);
        let bus = Rate::from_gbit(1).time_for(SECTOR * 30);
        assert!(second.hit && second.done == later + bus);
        let third = disk.read(second.done, 40, 10);
        assert!(third.hit && third.done > second.done + Duration::from_us(1600), "{}", third.done);
        assert!(third.done < second.done + ms(13));
    }
}

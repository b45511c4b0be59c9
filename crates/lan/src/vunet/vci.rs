//! Allocation of channels: a shared file and an algorithm, so that applications do not use each other's.
//!
//! ```text
//! file: owner of each block of VCIs | which VCIs are taken, and by whom | version
//!
//! application:  read --> choose free VCIs of its own block --> write, if the version is unchanged
//!                 ^                                              | otherwise
//!                 '----------------------------------------------'
//! ```
//!
//! Blocks of different owners (hosts) are disjoint, so hosts need not communicate; applications of one host share
//! its file, and the version keeps their changes apart. The text of the file:
//!
//! ```text
//! version 12
//! block 3 first 1232 count 400
//! taken 1232 by 77
//! ```
//!
//! Source: Aurora report §3.6, which describes neither the file nor the algorithm: both are ours.

use lastmeter_wire::atm::VCI_PNNI;
use std::collections::BTreeMap;

/// The first channel that is allocated: lower ones are reserved by convention.
pub const FIRST: u16 = 32;
const _: () = assert!(FIRST > VCI_PNNI);

/// The channels of one owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Block {
    /// The lowest.
    pub first: u16,
    /// Number of channels.
    pub count: u16,
}

impl Block {
    /// The block of owner number `owner` of `owners`, all of the same size.
    ///
    /// # Errors
    /// If there are too many owners for one channel each, or no such owner.
    ///
    /// ```
    /// use lastmeter_lan::vunet::vci::Block;
    /// let (a, b) = (Block::of(0, 22)?, Block::of(1, 22)?);
    /// assert_eq!((a.first, b.first, a.count), (32, 3009, 2977));
    /// # Ok::<(), String>(())
    /// ```
    pub fn of(owner: usize, owners: usize) -> Result<Block, String> {
        let room = usize::from(u16::MAX - FIRST) + 1;
        let count = room / owners.max(1);
        match u16::try_from(owner * count + usize::from(FIRST)) {
            Ok(first) if count > 0 && owner < owners => Ok(Block { first, count: count as u16 }),
            _ => Err(format!("{room} channels are not enough for owner {owner} of {owners}")),
        }
    }

    fn has(&self, vci: u16) -> bool {
        vci.checked_sub(self.first).is_some_and(|place| place < self.count)
    }
}

/// The shared file of one host.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SharedFile {
    /// Incremented by every change.
    version: u64,
    owner: u16,
    block: Block,
    /// The application that uses each channel.
    taken: BTreeMap<u16, u32>,
}

/// Why a change was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The file was changed after it was read: read again.
    Stale,
    /// A channel is not of this host, is used by another application, or is not in use.
    NotYours(u16),
}

/// What an application has read and chosen, but not yet written.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Choice {
    version: u64,
    /// The channels.
    pub vcis: Vec<u16>,
}

impl SharedFile {
    /// The file of a host whose channels are all free.
    pub fn new(owner: u16, block: Block) -> SharedFile {
        SharedFile { version: 0, owner, block, taken: BTreeMap::new() }
    }

    /// Chooses the lowest `count` free channels. `None` if there are too few.
    pub fn choose(&self, count: usize) -> Option<Choice> {
        let all = (0..self.block.count).map(|place| self.block.first + place);
        let vcis: Vec<u16> = all.filter(|vci| !self.taken.contains_key(vci)).take(count).collect();
        (vcis.len() == count).then_some(Choice { version: self.version, vcis })
    }

    /// Writes a choice of the application `who`.
    ///
    /// # Errors
    /// If the file was changed in the meantime, or a channel is not of this host.
    pub fn take(&mut self, who: u32, choice: &Choice) -> Result<(), Refusal> {
        if choice.version != self.version {
            return Err(Refusal::Stale);
        }
        if let Some(&vci) = choice.vcis.iter().find(|&&vci| !self.block.has(vci)) {
            return Err(Refusal::NotYours(vci));
        }
        self.version += 1;
        self.taken.extend(choice.vcis.iter().map(|&vci| (vci, who)));
        Ok(())
    }

    /// Gives back channels of the application `who`.
    ///
    /// # Errors
    /// If one of them is not in use by it.
    pub fn give_back(&mut self, who: u32, vcis: &[u16]) -> Result<(), Refusal> {
        let mine = |vci: &u16| self.taken.get(vci) == Some(&who);
        if let Some(&vci) = vcis.iter().find(|&vci| !mine(vci)) {
            return Err(Refusal::NotYours(vci));
        }
        self.version += 1;
        self.taken.retain(|vci, _| !vcis.contains(vci));
        Ok(())
    }

    /// Reads, chooses and writes in one step.
    pub fn allocate(&mut self, who: u32, count: usize) -> Option<Vec<u16>> {
        let choice = self.choose(count)?;
        self.take(who, &choice).ok().map(|()| choice.vcis)
    }

    /// The application that uses a channel.
    pub fn owner_of(&self, vci: u16) -> Option<u32> {
        self.taken.get(&vci).copied()
    }

    /// The file's text.
    pub fn emit(&self) -> String {
        let Block { first, count } = self.block;
        let mut text = format!("version {}\n", self.version);
        text += &format!("block {} first {first} count {count}\n", self.owner);
        self.taken.iter().for_each(|(vci, who)| text += &format!("taken {vci} by {who}\n"));
        text
    }

    /// # Errors
    /// The first invalid line, and what was expected there.
    pub fn parse(text: &str) -> Result<SharedFile, String> {
        let mut lines = text.lines().zip(1..);
        let mut next = |what: &str| {
            let line = lines.next().ok_or(format!("the file ends before `{what}`"))?;
            Ok::<(&str, u32), String>(line)
        };
        let wrong = |line: u32, right: &str| format!("line {line}: expected `{right}`");
        let (line, at) = next("version N")?;
        let [version] = numbers(line, ["version"]).ok_or_else(|| wrong(at, "version N"))?;
        let right = "block OWNER first VCI count N";
        let (line, at) = next(right)?;
        let [owner, first, count] =
            numbers(line, ["block", "first", "count"]).ok_or_else(|| wrong(at, right))?;
        let narrow = |number: u64| u16::try_from(number).map_err(|_| wrong(at, right));
        let block = Block { first: narrow(first)?, count: narrow(count)? };
        if first + count > 1 << 16 || first < u64::from(FIRST) {
            return Err(wrong(at, "channels from 32 to 65535"));
        }
        let mut file = SharedFile { version, owner: narrow(owner)?, block, taken: BTreeMap::new() };
        for (line, at) in lines {
            let right = "taken VCI by WHO, of this block and in order";
            let pair = numbers(line, ["taken", "by"])
                .and_then(|[vci, who]| Some((u16::try_from(vci).ok()?, u32::try_from(who).ok()?)));
            let (vci, who) = pair.ok_or_else(|| wrong(at, right))?;
            let in_order = file.taken.last_key_value().is_none_or(|(&last, _)| last < vci);
            if !file.block.has(vci) || !in_order {
                return Err(wrong(at, right));
            }
            file.taken.insert(vci, who);
        }
        Ok(file)
    }
}

/// The numbers of a line `word number word number`, written as they are emitted.
fn numbers<const N: usize>(line: &str, words: [&str; N]) -> Option<[u64; N]> {
    let mut parts = line.split(' ');
    let mut found = [0; N];
    for (word, place) in words.into_iter().zip(&mut found) {
        let text = parts.next().filter(|&part| part == word).and_then(|_| parts.next())?;
        *place = text.parse().ok()?;
        // Neither signs nor leading zeros.
        if place.to_string() != text {
            return None;
        }
    }
    parts.next().is_none().then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lastmeter_base::Stream;
    use proptest::prelude::*;
    use std::collections::HashSet;

    #[test]
    fn a_70_blocks_of_owners_are_disjoint() {
        for owners in [1, 2, 7, 22, 1000] {
            let blocks: Vec<Block> = (0..owners).map(|n| Block::of(n, owners).unwrap()).collect();
            for pair in blocks.windows(2) {
                assert!(pair[0].first + pair[0].count <= pair[1].first);
            }
            let last = blocks.last().unwrap();
            assert!(u32::from(last.first) + u32::from(last.count) <= 1 << 16);
        }
        assert!(Block::of(0, 70_000).is_err() && Block::of(3, 3).is_err());
    }

    /// Applications of one host, each somewhere between reading and writing.
    #[derive(Clone, PartialEq, Eq, Hash)]
    struct System {
        file: SharedFile,
        applications: Vec<Application>,
        /// Whether writing checks the version.
        checks: bool,
    }

    #[derive(Clone, Default, PartialEq, Eq, Hash)]
    struct Application {
        choice: Option<Choice>,
        has: Vec<u16>,
        opened: u8,
    }

    /// Every reachable state of applications that each open and close this many connections.
    fn explore(applications: usize, opens: u8, count: u16, checks: bool) -> (usize, bool) {
        let file = SharedFile::new(1, Block { first: 40, count });
        let first =
            System { file, applications: vec![Application::default(); applications], checks };
        let mut known = HashSet::from([first.clone()]);
        let mut left = vec![first];
        let mut collides = false;
        while let Some(system) = left.pop() {
            let mut seen = HashSet::new();
            let all = system.applications.iter().flat_map(|one| &one.has);
            collides |= !all.into_iter().all(|&vci| seen.insert(vci));
            for who in 0..applications {
                let mut reach = |change: &dyn Fn(&mut System)| {
                    let mut next = system.clone();
                    change(&mut next);
                    if known.insert(next.clone()) {
                        left.push(next);
                    }
                };
                let one = &system.applications[who];
                match &one.choice {
                    None if one.opened < opens => reach(&|next| {
                        next.applications[who].choice = next.file.choose(1);
                    }),
                    None => {}
                    Some(choice) => {
                        reach(&|next| {
                            let mut choice = choice.clone();
                            if !next.checks {
                                choice.version = next.file.version;
                            }
                            let one = &mut next.applications[who];
                            one.choice = None;
                            if next.file.take(who as u32, &choice).is_ok() {
                                one.has.extend(choice.vcis);
                                one.opened += 1;
                            }
                        });
                        // It may also crash here.
                        reach(&|next| next.applications[who].choice = None);
                    }
                }
                if let Some(&vci) = one.has.first() {
                    reach(&|next| {
                        next.applications[who].has.remove(0);
                        let given = next.file.give_back(who as u32, &[vci]);
                        assert!(given.is_ok() || !next.checks);
                    });
                }
            }
        }
        (known.len(), collides)
    }

    #[test]
    #[allow(clippy::print_stdout, reason = "the number of states is worth reading")]
    fn a_70_no_two_applications_of_a_host_ever_use_the_same_channel() {
        for (applications, opens, count) in [(2, 3, 2), (2, 2, 4), (3, 1, 3), (3, 1, 2)] {
            let (states, collides) = explore(applications, opens, count, true);
            println!("{applications} applications, {opens} opens, {count} channels: {states}");
            assert!(states > 10 && !collides);
        }
        assert!(explore(2, 1, 2, false).1, "without the version, two use the same channel");
    }

    #[test]
    fn a_70_many_applications_of_many_hosts_never_collide() {
        let mut random = Stream::new(1, "channels");
        let mut files: Vec<SharedFile> =
            (0..22).map(|n| SharedFile::new(n as u16, Block::of(n, 22).unwrap())).collect();
        let mut choices: Vec<Option<Choice>> = vec![None; 22 * 8];
        let mut held: Vec<Vec<u16>> = vec![Vec::new(); 22 * 8];
        let (mut taken, mut stale) = (HashSet::new(), 0);
        for _ in 0..100_000 {
            let place = random.below(22 * 8) as usize;
            let (file, who) = (&mut files[place / 8], (place % 8) as u32);
            if random.chance(0.3) && !held[place].is_empty() {
                let vci = held[place].swap_remove(0);
                file.give_back(who, &[vci]).unwrap();
                assert!(taken.remove(&vci));
            } else if let Some(choice) = choices[place].take() {
                match file.take(who, &choice) {
                    Ok(()) => {
                        assert!(choice.vcis.iter().all(|&vci| taken.insert(vci)), "stolen");
                        held[place].extend(choice.vcis);
                    }
                    Err(refusal) => {
                        assert_eq!(refusal, Refusal::Stale);
                        stale += 1;
                    }
                }
            } else {
                choices[place] = file.choose(1 + random.below(20) as usize);
            }
        }
        assert!(stale > 1000, "only {stale} conflicts");
        assert!(files.iter().all(|file| SharedFile::parse(&file.emit()).as_ref() == Ok(file)));
    }

    #[test]
    fn an_application_cannot_give_back_channels_of_another() {
        let mut file = SharedFile::new(1, Block { first: 40, count: 3 });
        assert_eq!(file.allocate(7, 2), Some(vec![40, 41]));
        assert_eq!(file.give_back(8, &[40]), Err(Refusal::NotYours(40)));
        assert_eq!((file.allocate(8, 2), file.owner_of(41)), (None, Some(7)));
        let outside = Choice { version: 1, vcis: vec![90] };
        assert_eq!(file.take(8, &outside), Err(Refusal::NotYours(90)));
    }

    proptest! {
        #[test]
        fn a_file_that_parses_is_emitted_unchanged(
            text in "(version [0-9]{1,3}\n)?(block [0-9] first [0-9]{2,5} count [0-9]{1,5}\n)?\
                     (taken [0-9]{2,5} by [0-9]{1,3}\n){0,3}.{0,4}",
        ) {
            if let Ok(file) = SharedFile::parse(&text) {
                let emitted = file.emit();
                prop_assert_eq!(emitted.trim_end(), text.trim_end());
            }
        }
    }
}

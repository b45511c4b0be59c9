//! Overrides of profiles: `--set profiles.hosts/NAME.KEY=VALUE`.

use super::Experiment;
use crate::document::{Override, Problem, of_option};
use crate::kinds::Registry;
use crate::library::{Library, Output, Programs};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;

/// The first part of their keys.
const PROFILES: &str = "profiles";

/// A library with overrides of its profiles.
pub(super) struct Changed<'a> {
    library: &'a dyn Library,
    /// By `hosts/NAME`.
    changes: BTreeMap<String, Vec<Override>>,
}

impl<'a> Changed<'a> {
    /// Takes the overrides of profiles; returns the others, too.
    pub(super) fn of(overrides: &[Override], library: &'a dyn Library) -> (Self, Vec<Override>) {
        let (mut changes, mut others) = (BTreeMap::<String, Vec<Override>>::new(), Vec::new());
        for change in overrides {
            match change.within(PROFILES) {
                Some((profile, change)) => {
                    let known = || library.changes(&profile).to_vec();
                    changes.entry(profile.clone()).or_insert_with(known).push(change);
                }
                None => others.push(change.clone()),
            }
        }
        (Changed { library, changes }, others)
    }

    /// Overrides of profiles that the experiment does not use.
    pub(super) fn unused(&self, experiment: &Experiment) -> Vec<Problem> {
        let kinds = self.library.kinds();
        let of_nodes = experiment.nodes.iter().flat_map(|node| node.profiles(kinds));
        let of_nodes = of_nodes.filter_map(|(_, named)| named.last().cloned());
        let cards = experiment.links.iter().filter_map(|link| link.values.given("card"));
        let cards = cards.map(|name: String| (super::LINKS, name));
        let used = of_nodes.chain(cards).map(|(folder, name)| format!("{folder}/{name}"));
        let used: BTreeSet<String> = used.collect();
        let unused = self.changes.iter().filter(|(profile, _)| !used.contains(*profile));
        let right = match used.is_empty() {
            true => "its nodes and links name no profile".to_owned(),
            false => {
                let used: Vec<&str> = used.iter().map(String::as_str).collect();
                format!("it uses {}: write profiles.{}.KEY=VALUE", used.join(", "), used[0])
            }
        };
        let problem = |(profile, changes): (&String, &Vec<Override>)| {
            let text = changes.last().map_or(profile.as_str(), Override::text);
            of_option("--set", text, "is of a profile that the experiment does not use", &right)
        };
        unused.map(problem).collect()
    }
}

impl Library for Changed<'_> {
    fn profile(&self, folder: &str, name: &str) -> Result<String, String> {
        self.library.profile(folder, name)
    }
    fn open(&self, path: &str) -> Result<Box<dyn Read + Send>, String> {
        self.library.open(path)
    }
    fn names(&self, folder: &str) -> Vec<String> {
        self.library.names(folder)
    }
    fn changes(&self, profile: &str) -> &[Override] {
        match self.changes.get(profile) {
            Some(changes) => changes,
            None => self.library.changes(profile),
        }
    }
    fn kinds(&self) -> &Registry {
        self.library.kinds()
    }
    fn programs(&self) -> Option<&dyn Programs> {
        self.library.programs()
    }
    fn tap(&self, link: &str) -> Option<Output> {
        self.library.tap(link)
    }
}

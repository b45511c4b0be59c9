//! Files: experiments, profiles and captures on disk, which take precedence over bundled ones.

use crate::Complaint;
use lastmeter_lab::library::{Builtin, Library, Output, Programs};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufReader, BufWriter, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// An experiment's text and where its captures are looked for.
#[derive(Debug)]
pub struct Found {
    /// Its name in messages.
    pub name: String,
    /// Its bytes.
    pub text: Vec<u8>,
    /// The folder that file names in it are relative to; `None` for a bundled one.
    pub folder: Option<PathBuf>,
}

/// Files longer than this are not experiments.
const TEXT_MAX: u64 = 64 << 20;

/// Reads a file unless it is longer than `most` bytes, too many for `what`.
pub(crate) fn read(path: &Path, most: u64, what: &str) -> Result<Vec<u8>, Complaint> {
    let fault = |error| Complaint(format!("cannot read `{}`: {error}", path.display()));
    let length = fs::metadata(path).map_err(fault)?.len();
    if length > most {
        let path = path.display();
        return Err(Complaint(format!("`{path}` has {length} bytes, too many for {what}")));
    }
    fs::read(path).map_err(fault)
}

/// Finds an experiment: a file, a folder with an `experiment.toml`, or a bundled one by name.
///
/// # Errors
/// There is none; suggests what was probably meant.
pub fn experiment(named: &str) -> Result<Found, Complaint> {
    let path = Path::new(named);
    let path = if path.is_dir() { path.join("experiment.toml") } else { path.to_owned() };
    if path.is_file() {
        let text = read(&path, TEXT_MAX, "an experiment")?;
        let here = |folder: &Path| folder.as_os_str().is_empty();
        let folder = path.parent().map(|folder| if here(folder) { Path::new(".") } else { folder });
        let folder = folder.map(Path::to_owned);
        return Ok(Found { name: path.display().to_string(), text, folder });
    }
    let bundled = lastmeter_lab::library::experiment(named);
    let folder = Path::new(named);
    let of_folder = folder.join("repro.toml").is_file().then(|| folder.file_name()?.to_str());
    let name = of_folder.flatten().unwrap_or(named);
    if lastmeter_lab::library::is_reproduction(name) && bundled.is_none() {
        let hint = format!("`lastmeter repro {name}` compares it with what was published");
        return Err(Complaint(format!("`{named}` is a reproduction: {hint}")));
    }
    if folder.is_dir() {
        let hint = "name a file, or a folder that has one";
        return Err(Complaint(format!("`{named}` is a folder without experiment.toml: {hint}")));
    }
    bundled
        .map(|text| Found { name: named.to_owned(), text: text.into(), folder: None })
        .ok_or_else(|| Complaint(not_found(named)))
}

fn not_found(named: &str) -> String {
    let names = lastmeter_lab::library::experiments();
    let near = lastmeter_lab::document::nearest(named, names.iter().map(String::as_str));
    let hint = match near {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("the bundled experiments are {}", names.join(", ")),
    };
    format!("there is no file or bundled experiment `{named}`: {hint}")
}

/// Files on disk first, then bundled ones.
pub struct Disk {
    folder: Option<PathBuf>,
    /// Captures to write, by link, until the model takes them.
    taps: Mutex<BTreeMap<String, File>>,
    programs: Option<Sandbox>,
}

/// What runs owners' programs (plugins) in models.
pub type Sandbox = Arc<dyn Programs>;

impl Disk {
    /// Looks for captures relative to `folder`.
    pub fn new(folder: Option<PathBuf>) -> Disk {
        Disk { folder, taps: Mutex::default(), programs: None }
    }

    /// With a sandbox for owners' programs, if there is one.
    #[must_use]
    pub fn with(self, programs: Option<Sandbox>) -> Disk {
        Disk { programs, ..self }
    }

    /// Adds a capture of a link: `LINK=FILE`. What the file holds stays until a model takes the capture.
    ///
    /// # Errors
    /// The text does not name a file, or one that cannot be written.
    pub fn add_tap(&self, text: &str) -> Result<(), Complaint> {
        let Some((link, path)) = text.split_once('=') else {
            let hint = "write a link and a file, like --pcap 'alice->bob=out.pcapng'";
            return Err(Complaint(format!("`{text}` does not name a file: {hint}")));
        };
        let file = File::options().write(true).create(true).truncate(false).open(path);
        let file = file.map_err(|error| Complaint(format!("cannot write `{path}`: {error}")))?;
        let mut taps = self.taps.lock().unwrap_or_else(PoisonError::into_inner);
        taps.insert(link.to_owned(), file);
        Ok(())
    }

    /// Rejects a capture that no link has taken; `links` are the existing ones.
    ///
    /// # Errors
    /// There is such a capture; suggests what was probably meant.
    pub fn check_taps(&self, links: &[&str]) -> Result<(), Complaint> {
        let taps = self.taps.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(link) = taps.keys().next() else { return Ok(()) };
        let near = lastmeter_lab::document::nearest(link, links.iter().copied());
        let hint = match near {
            Some(near) => format!("did you mean `{near}`?"),
            None if links.is_empty() => "the experiment has no links".to_owned(),
            None => format!("the links are {}", links.join(", ")),
        };
        Err(Complaint(format!("there is no link `{link}` to capture: {hint}")))
    }

    fn profile_path(&self, folder: &str, name: &str) -> Option<PathBuf> {
        // A profile beside the experiment takes precedence over a bundled one of the same name.
        let path = self.folder.as_ref()?.join("profiles").join(folder).join(format!("{name}.toml"));
        path.is_file().then_some(path)
    }
}

impl Library for Disk {
    fn profile(&self, folder: &str, name: &str) -> Result<String, String> {
        match self.profile_path(folder, name) {
            Some(path) => fs::read_to_string(&path)
                .map_err(|error| format!("cannot read `{}`: {error}", path.display())),
            None => Builtin.profile(folder, name),
        }
    }
    fn open(&self, path: &str) -> Result<Box<dyn Read + Send>, String> {
        let Some(folder) = &self.folder else { return Builtin.open(path) };
        let path = folder.join(path);
        match File::open(&path) {
            Ok(file) => Ok(Box::new(BufReader::new(file))),
            Err(error) => Err(format!("cannot open `{}`: {error}", path.display())),
        }
    }
    fn names(&self, folder: &str) -> Vec<String> {
        let mut names = Builtin.names(folder);
        let own = self.folder.as_ref().map(|own| own.join("profiles").join(folder));
        let files = own.and_then(|own| fs::read_dir(own).ok()).into_iter().flatten().flatten();
        let files = files.map(|entry| entry.path());
        let profiles = files.filter(|path| path.extension().is_some_and(|end| end == "toml"));
        names.extend(profiles.filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned())));
        names.sort();
        names.dedup();
        names
    }
    fn programs(&self) -> Option<&dyn Programs> {
        self.programs.as_deref()
    }
    fn tap(&self, link: &str) -> Option<Output> {
        let file = self.taps.lock().unwrap_or_else(PoisonError::into_inner).remove(link)?;
        // A pipe has no length to cut off; a file that cannot be cut could not be opened for writing.
        if file.metadata().is_ok_and(|about| about.is_file()) {
            file.set_len(0).ok();
        }
        Some(Box::new(BufWriter::new(file)))
    }
}

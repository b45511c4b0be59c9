//! The experiments that the page shows: bundled ones, and the files in a folder.

use super::files::Confined;
use super::route::Named;
use super::site::Fault;
use hyper::StatusCode;
use lastmeter_lab::library;
use lastmeter_linux::files;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::collections::HashSet;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Longer texts are not shown: they are too long for an editor in a page.
pub(super) const TEXT_MAX: usize = 1 << 20;
/// Limits: files listed, folders searched, and depth.
const FILES_MAX: usize = 500;
const FOLDERS_MAX: usize = 2000;
const DEPTH_MAX: usize = 4;
/// Folders skipped: other programs fill them, or what they hold is wrong on purpose.
const SKIPPED: [&str; 4] = ["target", "node_modules", "__pycache__", "tests"];

/// Experiments by name.
#[derive(Debug)]
pub(super) struct Shelf {
    /// Absolute, without symbolic links.
    root: PathBuf,
}

/// An experiment's text.
#[derive(Debug)]
pub(super) struct Text {
    pub(super) text: String,
    /// Changes with the text.
    pub(super) hash: String,
}

impl Shelf {
    /// # Errors
    /// There is no such folder.
    pub(super) fn new(folder: &Path) -> Result<Shelf, String> {
        let root = folder.canonicalize();
        let root = root.map_err(|error| format!("cannot open `{}`: {error}", folder.display()))?;
        match root.is_dir() {
            true => Ok(Shelf { root }),
            false => {
                Err(format!("`{}` is a file; name the folder that it is in", folder.display()))
            }
        }
    }

    pub(super) fn folder(&self) -> &Path {
        &self.root
    }

    /// Every experiment, with its title and question. A bundled one whose exact text is also in the folder is
    /// listed only there, where it can be changed.
    pub(super) fn list(&self) -> Value {
        let (files, more) = self.files();
        let in_folder: HashSet<String> = files.iter().map(|(_, hash)| hash.clone()).collect();
        let bundled: Vec<Value> = library::experiments()
            .into_iter()
            .filter_map(|name| {
                let text = library::experiment(&name)?;
                (!in_folder.contains(&hash(text))).then(|| entry(&name, text))
            })
            .collect();
        let files: Vec<Value> = files.into_iter().map(|(file, _)| file).collect();
        json!({
            "bundled": bundled,
            "folder": self.root.display().to_string(),
            "files": files,
            "more": more,
        })
    }

    /// The files that look like experiments, each with the hash of its text, and whether there are
    /// more than are listed.
    fn files(&self) -> (Vec<(Value, String)>, bool) {
        let mut folders = vec![(self.root.clone(), 0)];
        let (mut files, mut looked, mut more) = (Vec::new(), 0, false);
        while let Some((folder, depth)) = folders.pop() {
            looked += 1;
            if looked > FOLDERS_MAX || files.len() >= FILES_MAX {
                more = true;
                break;
            }
            let Ok(entries) = fs::read_dir(&folder) else { continue };
            for entry in entries.flatten() {
                let (path, name) = (entry.path(), entry.file_name());
                let Some(name) = name.to_str().filter(|name| !name.starts_with('.')) else {
                    continue;
                };
                // Symbolic links are not followed: they may lead anywhere, or in circles.
                let Ok(kind) = entry.file_type() else { continue };
                if kind.is_dir() && depth < DEPTH_MAX && !SKIPPED.contains(&name) {
                    folders.push((path, depth + 1));
                } else if kind.is_file() && name.ends_with(".toml") {
                    files.extend(self.listed(&path));
                }
            }
        }
        files.sort_by(|(a, _), (b, _)| a["name"].as_str().cmp(&b["name"].as_str()));
        (files, more)
    }

    /// A file's entry in the list, if it is an experiment.
    fn listed(&self, path: &Path) -> Option<(Value, String)> {
        let length = fs::metadata(path).ok()?.len();
        if length > TEXT_MAX as u64 {
            return None;
        }
        let text = read(path).ok()?;
        let has = |key: &str| text.lines().any(|line| line.trim_start().starts_with(key));
        let name = path.strip_prefix(&self.root).ok()?.to_str()?;
        let is_one = has("duration") && (has("[nodes") || has("nodes"));
        is_one.then(|| (entry(name, &text), hash(&text)))
    }

    /// # Errors
    /// There is none, or it cannot be shown.
    pub(super) fn read(&self, named: &Named) -> Result<Text, Fault> {
        let missing = || Fault::new(StatusCode::NOT_FOUND, "there is no such experiment");
        let text = match named {
            Named::Bundled(name) => library::experiment(name).ok_or_else(missing)?.to_owned(),
            Named::File(parts) => {
                let path = self.path(parts)?;
                let length = fs::metadata(&path).map_err(|_| missing())?.len();
                if length > TEXT_MAX as u64 {
                    let words = format!("the file has {length} bytes, too many for this editor");
                    return Err(Fault::new(StatusCode::PAYLOAD_TOO_LARGE, words));
                }
                let not_text = |error| {
                    let words = format!("the file cannot be shown: {error}");
                    Fault::new(StatusCode::UNPROCESSABLE_ENTITY, words)
                };
                read(&path).map_err(not_text)?
            }
        };
        let hash = hash(&text);
        Ok(Text { text, hash })
    }

    /// Saves a text as a file. `base` is the hash of the text that was edited, `None` for a new file, so that
    /// nobody's changes are overwritten unseen.
    ///
    /// # Errors
    /// The file has changed meanwhile, or cannot be written.
    pub(super) fn save(
        &self,
        parts: &[String],
        text: &str,
        base: Option<&str>,
    ) -> Result<String, Fault> {
        let bad = |words: String| Fault::new(StatusCode::UNPROCESSABLE_ENTITY, words);
        if !parts.last().is_some_and(|name| name.ends_with(".toml")) {
            return Err(bad("the name of an experiment ends in .toml".to_owned()));
        }
        let (folders, name) = parts.split_at(parts.len() - 1);
        let folder: PathBuf = self.root.join(folders.iter().collect::<PathBuf>());
        // A symbolic link on the way may lead out, so what was created is checked before use.
        let there = folder.ancestors().find(|folder| folder.exists()).unwrap_or(&self.root);
        self.within(there)?;
        let failed = |error: std::io::Error| bad(format!("cannot save: {error}"));
        fs::create_dir_all(&folder).map_err(failed)?;
        let path = self.within(&folder)?.join(&name[0]);
        let found = match fs::symlink_metadata(&path) {
            Ok(metadata) if metadata.is_file() => Some(hash(&read(&path).map_err(failed)?)),
            Ok(_) => {
                return Err(bad("this name is taken by something that is not a file".to_owned()));
            }
            Err(_) => None,
        };
        if found.as_deref() != base {
            let words = match (&found, base) {
                (Some(_), None) => "a file of this name exists already",
                _ => "the file was changed by somebody else since it was opened",
            };
            return Err(Fault::new(StatusCode::CONFLICT, words));
        }
        if base.is_none() {
            // Of two that save at once, one gets the name; a link or a pipe already has it.
            fs::File::create_new(&path).map_err(failed)?;
        }
        files::replace(&path, text.as_bytes()).map_err(failed)?;
        Ok(hash(text))
    }

    /// What this experiment may open.
    pub(super) fn library(&self, named: &Named) -> Confined {
        match named {
            Named::Bundled(_) => Confined::bundled(),
            Named::File(parts) => {
                let at: PathBuf = parts[..parts.len() - 1].iter().collect();
                let at = self.root.join(at);
                Confined::new(at.canonicalize().unwrap_or(at), self.root.clone())
            }
        }
    }

    /// The path of a file that is within the folder, with symbolic links resolved.
    fn path(&self, parts: &[String]) -> Result<PathBuf, Fault> {
        self.within(&self.root.join(parts.iter().collect::<PathBuf>()))
    }

    fn within(&self, path: &Path) -> Result<PathBuf, Fault> {
        let missing = || Fault::new(StatusCode::NOT_FOUND, "there is no such file in the folder");
        let real = path.canonicalize().map_err(|_| missing())?;
        if real.starts_with(&self.root) { Ok(real) } else { Err(missing()) }
    }
}

/// The text of a file that is neither a link nor a pipe nor very long.
fn read(path: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    files::regular(path)?.take(TEXT_MAX as u64 + 1).read_to_string(&mut text)?;
    Ok(text)
}

/// An experiment's entry in the list, with its title and question if its text has them.
fn entry(name: &str, text: &str) -> Value {
    json!({ "name": name, "title": line_of(text, "title"), "question": line_of(text, "question") })
}

/// A one-line string at the top of an experiment.
fn line_of(text: &str, key: &str) -> String {
    let top = text.lines().take_while(|line| !line.trim_start().starts_with('['));
    let values =
        top.filter_map(|line| line.trim().strip_prefix(key)?.trim_start().strip_prefix('='));
    let mut values = values.filter_map(|value| {
        let value = value.trim().strip_prefix('"')?;
        Some(value[..value.find('"')?].to_owned())
    });
    values.next().unwrap_or_default()
}

/// The name of an experiment in messages.
pub(super) fn title_of(named: &Named) -> String {
    match named {
        Named::Bundled(name) => name.clone(),
        Named::File(parts) => parts.join("/"),
    }
}

/// The first 16 hexadecimal digits of the SHA-256 of a text.
fn hash(text: &str) -> String {
    let digest = Sha256::digest(text.as_bytes());
    digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "title = \"A\"\nquestion = \"Why?\"\nduration = \"1 s\"\n[nodes]\n";

    fn parts(path: &str) -> Vec<String> {
        path.split('/').map(str::to_owned).collect()
    }

    #[test]
    fn bundled_experiments_and_those_in_the_folder_are_listed() {
        let space = tempfile::tempdir().unwrap();
        let shelf = Shelf::new(space.path()).unwrap();
        shelf.save(&parts("one/experiment.toml"), TEXT, None).unwrap();
        fs::write(space.path().join("Cargo.toml"), "[package]\n").unwrap();
        fs::create_dir(space.path().join(".git")).unwrap();
        fs::write(space.path().join(".git/x.toml"), TEXT).unwrap();
        let list = shelf.list();
        let files = json!([{ "name": "one/experiment.toml", "title": "A", "question": "Why?" }]);
        assert_eq!(list["files"], files);
        let bundled = list["bundled"].as_array().unwrap();
        assert!(bundled.iter().any(|one| one["name"] == "first-path" && one["title"] != ""));
        assert!(bundled.iter().all(|one| one["name"] != "livelock"), "that is reproduced, not run");
        let own = library::experiment("first-path").unwrap();
        shelf.save(&parts("first-path/experiment.toml"), own, None).unwrap();
        let list = shelf.list();
        let has = |part: &str, name: &str| {
            list[part].as_array().unwrap().iter().any(|one| one["name"] == name)
        };
        assert!(has("files", "first-path/experiment.toml") && !has("bundled", "first-path"));
    }

    #[test]
    fn a_file_changed_since_it_was_read_is_not_overwritten() {
        let space = tempfile::tempdir().unwrap();
        let shelf = Shelf::new(space.path()).unwrap();
        let name = parts("a.toml");
        let first = shelf.save(&name, TEXT, None).unwrap();
        let status = |result: Result<String, Fault>| result.unwrap_err().status;
        assert_eq!(status(shelf.save(&name, "x", None)), StatusCode::CONFLICT);
        let second = shelf.save(&name, "x = 1", Some(&first)).unwrap();
        assert_eq!(status(shelf.save(&name, "y", Some(&first))), StatusCode::CONFLICT);
        assert_eq!(shelf.read(&Named::File(name)).unwrap().hash, second);
        assert_eq!(
            status(shelf.save(&parts("a.txt"), "x", None)),
            StatusCode::UNPROCESSABLE_ENTITY
        );
    }

    #[test]
    fn symbolic_links_are_not_followed() {
        let space = tempfile::tempdir().unwrap();
        let (root, outside) = (space.path().join("root"), space.path().join("outside"));
        [&root, &outside].iter().for_each(|folder| fs::create_dir(folder).unwrap());
        fs::write(outside.join("secret.toml"), TEXT).unwrap();
        std::os::unix::fs::symlink(&outside, root.join("link")).unwrap();
        std::os::unix::fs::symlink(outside.join("secret.toml"), root.join("a.toml")).unwrap();
        let shelf = Shelf::new(&root).unwrap();
        assert_eq!(shelf.list()["files"], json!([]));
        for path in ["link/secret.toml", "a.toml"] {
            let named = Named::File(parts(path));
            assert_eq!(shelf.read(&named).unwrap_err().status, StatusCode::NOT_FOUND, "{path}");
        }
        for path in ["link/new.toml", "link/deeper/new.toml", "a.toml"] {
            assert!(shelf.save(&parts(path), "x", None).is_err(), "{path}");
        }
        // Two more of the same: pipes, and links that lead nowhere.
        let made = std::process::Command::new("mkfifo").arg(root.join("b.toml")).status();
        assert!(made.is_ok_and(|status| status.success()));
        std::os::unix::fs::symlink(outside.join("new.toml"), root.join("c.toml")).unwrap();
        for path in ["b.toml", "c.toml"] {
            assert!(shelf.read(&Named::File(parts(path))).is_err(), "{path}");
            assert!(shelf.save(&parts(path), "x", None).is_err(), "{path}");
        }
        assert_eq!(shelf.list()["files"], json!([]));
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
        assert_eq!(fs::read_to_string(outside.join("secret.toml")).unwrap(), TEXT);
    }
}

//! The constants of a computation, each with its origin.
//!
//! ```text
//! [constants]
//! segment = { value = "256 B", source = "Table 5.1", what = "D_segsize, DMA segment size" }
//! metre_delay = { value = "5 ns", origin = "assumed", source = "light in glass", what = "..." }
//! copy = { at = "hosts/sparc20-71: send.copy out.per-byte", source = "Table 2", what = "a copy" }
//! ```
//!
//! `at` reads the value from the profile where it is typed.

use super::error::Error;
use crate::document::{Content, Decoder, Document, Entry, Fault, Item, Reporter, Shape, join};
use crate::library::{Builtin, Library};
use lastmeter_base::kind::{PACKET_MAX, Param, ParamKind, Typed};
use lastmeter_base::{Bytes, Duration, PerByte, Rate};
use serde::Serialize;
use std::collections::BTreeMap;

/// Where a constant comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// It is printed in the document.
    Document,
    /// It is general knowledge that the document needs but does not state.
    Assumed,
    /// It was chosen so that our result agrees with published values, or after a result was seen;
    /// `source` names them.
    Fitted,
}

/// The number of constants of each origin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Origins {
    /// From the document.
    pub document: u64,
    /// From general knowledge.
    pub assumed: u64,
    /// From fitting.
    pub fitted: u64,
}

const CONSTANT: &[Param] = &[
    Param::required("source", ParamKind::Text).is("the section, or what it was fitted to"),
    Param::required("what", ParamKind::Text).is("what it means, with the document's letter"),
    Param::optional("at", ParamKind::Text, "`value`").is("the profile and key that have its value"),
    Param::or("origin", ParamKind::Choice(ORIGINS), "document").is("where it comes from"),
    Param::or("settled", ParamKind::Choice(SETTLED), "before")
        .is("whether it was chosen before or after a result was seen"),
];
const ORIGINS: &[&str] = &["document", "assumed", "fitted"];
const SETTLED: &[&str] = &["before", "after"];

/// The keys of a profile other than its constants.
pub(super) const PROFILE: &[Param] = &[
    Param::required("what", ParamKind::Text).is("what it describes"),
    Param::required("source", ParamKind::Text).is("the document"),
];
/// Constants by name.
#[derive(Clone, Debug, Default)]
pub struct Constants {
    known: BTreeMap<String, Constant>,
    /// One for each file, with its text: values are decoded when requested.
    files: Vec<Reporter>,
}

#[derive(Clone, Debug)]
struct Constant {
    value: Item,
    what: String,
    origin: Origin,
    file: usize,
}

/// A type of constant.
pub trait ConstantType: Typed {
    /// How to write it.
    const KIND: ParamKind;
}

impl ConstantType for Duration {
    const KIND: ParamKind = ParamKind::Time;
}
impl ConstantType for Bytes {
    const KIND: ParamKind = ParamKind::Size { min: 0, max: PACKET_MAX.0 };
}
impl ConstantType for Rate {
    const KIND: ParamKind = ParamKind::Rate;
}
impl ConstantType for PerByte {
    const KIND: ParamKind = ParamKind::PerByte;
}
impl ConstantType for u64 {
    const KIND: ParamKind = ParamKind::Integer { min: 0, max: i64::MAX as u64 };
}

impl ConstantType for Vec<u64> {
    const KIND: ParamKind = ParamKind::Integers { min: 0, max: i64::MAX as u64 };
}

/// Reads a file of constants.
///
/// # Errors
/// If it is not TOML.
pub fn open(file: &str, text: &str) -> Result<(Item, Decoder<'static>), Error> {
    let Document { root, reporter } =
        Document::parse(file, text.as_bytes()).map_err(Error::Problems)?;
    Ok((root, Decoder { reporter, library: &Builtin }))
}

/// The value at `FOLDER/NAME: KEY` of a bundled profile, and what reports errors in it.
fn elsewhere(at: &str) -> Result<(Item, Reporter), String> {
    let (profile, key) = at.split_once(": ").unwrap_or((at, ""));
    let (folder, name) = profile.split_once('/').unwrap_or(("", profile));
    let text = Builtin.profile(folder, name)?;
    let file = format!("profiles/{profile}.toml");
    let document = Document::parse(&file, text.as_bytes());
    let Document { root, reporter } = document.map_err(|_| format!("{file} is no TOML"))?;
    let part = |item: &Item, name: &str| match &item.content {
        Content::List(items) => items.iter().find(|item| item.text("name") == Some(name)).cloned(),
        _ => item.get(name).cloned(),
    };
    let missing = || format!("{file} has no `{key}`");
    let value =
        key.split('.').try_fold(root, |item, name| part(&item, name)).ok_or_else(missing)?;
    Ok((value, reporter))
}

/// Finishes reading a file.
///
/// # Errors
/// All errors found in it.
pub fn finish(decoder: Decoder<'_>) -> Result<(), Error> {
    match decoder.reporter.is_empty() {
        true => Ok(()),
        false => Err(Error::Problems(decoder.reporter.into_problems())),
    }
}

impl Constants {
    /// The constants of a profile's file, and the document that is their source.
    ///
    /// # Errors
    /// All errors in it, each with its place.
    pub fn of_profile(file: &str, text: &str) -> Result<(Constants, String), Error> {
        Constants::of_file(file, text, &Builtin)
    }

    /// The same with what the library sets in it (`--set profiles.FOLDER/NAME.KEY=VALUE`).
    ///
    /// # Errors
    /// All errors in it, each with its place.
    pub fn of_file(
        file: &str,
        text: &str,
        library: &dyn Library,
    ) -> Result<(Constants, String), Error> {
        let Document { root, reporter } =
            super::changed(file, text.as_bytes(), library).map_err(Error::Problems)?;
        let mut constants = Constants::default();
        let source = constants.add_document(&root, Decoder { reporter, library: &Builtin })?;
        Ok((constants, source))
    }

    /// Adds the constants of a profile's file, and returns the document that is their source.
    ///
    /// # Errors
    /// All errors in it, each with its place.
    pub fn add_profile(&mut self, file: &str, text: &str) -> Result<String, Error> {
        let (root, decoder) = open(file, text)?;
        self.add_document(&root, decoder)
    }

    fn add_document(&mut self, root: &Item, mut decoder: Decoder<'_>) -> Result<String, Error> {
        let besides = &["constants"];
        let shape = Shape { what: "a profile", params: PROFILE, kind: None, besides };
        let (_, values) = decoder.table(&shape, root, "");
        self.add(&mut decoder, root.get("constants"));
        finish(decoder)?;
        Ok(values.get("source"))
    }

    /// Adds the constants of a file, and reports errors in them.
    pub fn add(&mut self, decoder: &mut Decoder<'_>, table: Option<&Item>) {
        self.files.push(decoder.reporter.clone());
        let file = self.files.len() - 1;
        for entry in table.and_then(Item::entries).unwrap_or_default() {
            if let Some(constant) = self.read(decoder, entry, file) {
                self.known.insert(entry.key.clone(), constant);
            }
        }
    }

    fn read(&mut self, decoder: &mut Decoder<'_>, entry: &Entry, file: usize) -> Option<Constant> {
        let key = join("constants", &entry.key);
        let shape = Shape { what: "a constant", params: CONSTANT, kind: None, besides: &["value"] };
        let (_, values) = decoder.table(&shape, &entry.item, &key);
        let (source, what) = (values.given::<String>("source")?, values.given::<String>("what")?);
        let mut fail = |found: &str, right: &str| {
            decoder.report(&entry.mark, &key, Fault::new(found, right));
            None
        };
        if source.trim().is_empty() || what.trim().is_empty() {
            return fail("its origin is not given", "give it in `source` and `what`");
        }
        if self.known.contains_key(&entry.key) {
            return fail("the profile has this constant already", "leave one out");
        }
        let (value, file) = match (entry.item.get("value"), values.given::<String>("at")) {
            (Some(value), None) => (value.clone(), file),
            (None, Some(at)) => match elsewhere(&at) {
                Ok((value, reporter)) => {
                    self.files.push(reporter);
                    (value, self.files.len() - 1)
                }
                Err(found) => {
                    return fail(&found, "write `at = \"hosts/NAME: send.STAGE.per-byte\"`");
                }
            },
            _ => return fail("it has no value, or two", "write `value = \"10 us\"`"),
        };
        let written = |key: &str| values.given::<String>(key);
        let origin = match (written("origin")?.as_str(), written("settled")?.as_str()) {
            ("fitted", _) | (_, "after") => Origin::Fitted,
            ("document", _) => Origin::Document,
            _ => Origin::Assumed,
        };
        Some(Constant { value, what, origin, file })
    }

    /// The value of a constant: a quantity, written with its unit, or a whole number.
    ///
    /// # Errors
    /// If there is no such constant, or it is of another type.
    pub fn get<T: ConstantType>(&self, name: &str) -> Result<T, Error> {
        let constant = self.find(name)?;
        let reporter = self.files[constant.file].clone();
        let mut decoder = Decoder { reporter, library: &Builtin };
        let key = join("constants", &join(name, "value"));
        let value = decoder.value(T::KIND, &constant.value, &key);
        let typed = value.as_ref().and_then(T::typed);
        typed.ok_or_else(|| Error::Problems(decoder.reporter.into_problems()))
    }

    /// The meaning of the constant `name`, in the words of its file.
    ///
    /// # Errors
    /// If there is no such constant.
    pub fn what(&self, name: &str) -> Result<&str, Error> {
        self.find(name).map(|constant| constant.what.as_str())
    }

    /// Their names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.known.keys().map(String::as_str)
    }

    /// The number of constants of each origin.
    pub fn origins(&self) -> Origins {
        let mut origins = Origins::default();
        for constant in self.known.values() {
            match constant.origin {
                Origin::Document => origins.document += 1,
                Origin::Assumed => origins.assumed += 1,
                Origin::Fitted => origins.fitted += 1,
            }
        }
        origins
    }

    fn find(&self, name: &str) -> Result<&Constant, Error> {
        let known = || self.known.keys().cloned();
        self.known.get(name).ok_or_else(|| Error::unknown("constant", name, known()))
    }
}

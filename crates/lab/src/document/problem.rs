//! Errors in a document, worded so that a newcomer can fix them.

use super::tree::{Mark, Source};
use super::{FILE_LEN_MAX, PROBLEMS_MAX};
use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};
use lastmeter_base::text::{printable, shorten};
use serde::Serialize;
use std::fmt;
use std::ops::Range;

/// An error in a file or an override.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// The file's name, or `--set` for an override.
    pub file: String,
    /// The line, from 1.
    pub line: u64,
    /// The character within the line, from 1.
    pub column: u64,
    /// The key, from the root: `links.0.rate`. Empty for the whole file.
    pub key: String,
    /// What was found.
    pub found: String,
    /// What would be right.
    pub right: String,
    /// What was probably meant.
    pub suggestion: Option<String>,
    /// The line itself, cut where it is very long.
    pub excerpt: String,
    /// The bytes of the excerpt to underline.
    #[serde(skip)]
    pub highlight: Range<usize>,
}

/// An error without its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What was found.
    pub found: String,
    /// What would be right.
    pub right: String,
    /// What was probably meant.
    pub suggestion: Option<String>,
    /// The place, if known more exactly than by the caller that reports it.
    pub(crate) at: Option<Mark>,
}

impl Fault {
    /// A fault without a suggestion.
    pub fn new(found: impl Into<String>, right: impl Into<String>) -> Fault {
        Fault { found: found.into(), right: right.into(), suggestion: None, at: None }
    }
    /// The same fault at `mark`, unless it has a place already.
    pub(crate) fn at(self, mark: &Mark) -> Fault {
        Fault { at: self.at.or_else(|| Some(mark.clone())), ..self }
    }
    /// A name that is not among `known`, with the nearest one as a suggestion.
    pub fn unknown<'a>(
        found: impl Into<String>,
        right: impl Into<String>,
        name: &str,
        known: impl IntoIterator<Item = &'a str>,
    ) -> Fault {
        let suggestion = nearest(name, known).map(str::to_owned);
        Fault { suggestion, ..Fault::new(found, right) }
    }
}

/// The name among `known` that was probably meant by `name`, if one is near enough.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    const NAME_LEN_MAX: usize = 64;
    /// The most names that are compared.
    const KNOWN_MAX: usize = 2000;
    if name.len() > NAME_LEN_MAX {
        return None;
    }
    let name = name.to_lowercase();
    let len = name.chars().count();
    // A name of another length is at least so many typing errors away.
    let may_be = |known: &&str| {
        let known = known.chars().count();
        known.abs_diff(len) * 3 <= known.max(3)
    };
    let distance = |known: &str| strsim::damerau_levenshtein(&name, &known.to_lowercase());
    known
        .into_iter()
        .take(KNOWN_MAX)
        .filter(may_be)
        .map(|known| (distance(known), known))
        // At most one typing error per three letters; beyond that it is another word.
        .filter(|&(distance, known)| distance * 3 <= known.chars().count().max(3))
        .min_by_key(|&(distance, _)| distance)
        .map(|(_, known)| known)
}

impl Problem {
    /// As text for readers: the message, the line with the error underlined, and what would be right; in colour for
    /// a terminal.
    pub fn render(&self, colours: bool) -> String {
        let mut title = match self.key.is_empty() {
            true => self.found.clone(),
            false => format!("{}: {}", self.key, self.found),
        };
        // Without a line to show, only this names the file.
        if self.excerpt.is_empty() {
            title = format!("{}: {title}", self.file);
        }
        let mut first = Group::with_title(Level::ERROR.primary_title(&title));
        if !self.excerpt.is_empty() {
            first = first.element(
                Snippet::source(&self.excerpt)
                    .line_start(self.line as usize)
                    .path(&self.file)
                    .annotation(AnnotationKind::Primary.span(self.highlight.clone())),
            );
        }
        let meant = self.suggestion.as_ref().map(|name| format!("did you mean `{name}`?"));
        let mut groups = vec![first];
        if let Some(meant) = &meant {
            groups.push(Group::with_title(Level::HELP.secondary_title(meant)));
        }
        if !self.right.is_empty() {
            groups.push(Group::with_title(Level::HELP.secondary_title(&self.right)));
        }
        let renderer = if colours { Renderer::styled() } else { Renderer::plain() };
        renderer.render(&groups)
    }
}

impl fmt::Display for Problem {
    /// On one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Problem { file, line, column, key, found, right, .. } = self;
        write!(f, "{file}:{line}:{column}: ")?;
        if !key.is_empty() {
            write!(f, "{key}: ")?;
        }
        f.write_str(found)?;
        if let Some(suggestion) = &self.suggestion {
            write!(f, "; did you mean `{suggestion}`?")?;
        }
        if right.is_empty() { Ok(()) } else { write!(f, "; {right}") }
    }
}

impl std::error::Error for Problem {}

/// Collects problems, and has the texts to which they refer.
#[derive(Clone, Debug, Default)]
pub struct Reporter {
    pub(super) sources: Vec<Source>,
    problems: Vec<Problem>,
}

impl Reporter {
    /// Adds a problem at `mark`, unless there are very many already.
    pub fn report(&mut self, mark: &Mark, key: &str, fault: Fault) {
        if self.problems.len() < PROBLEMS_MAX {
            let problem = self.problem(mark, key, fault);
            // An error may be found in two ways, but is reported once.
            if !self.problems.contains(&problem) {
                self.problems.push(problem);
            }
        }
    }

    fn problem(&self, mark: &Mark, key: &str, fault: Fault) -> Problem {
        let Fault { found, right, suggestion, at } = fault;
        let mark = at.as_ref().unwrap_or(mark);
        let mut problem = Problem {
            file: String::new(),
            line: 1,
            column: 1,
            key: shorten(key),
            found,
            right,
            suggestion,
            excerpt: String::new(),
            highlight: 0..0,
        };
        if let Some(source) = self.sources.get(mark.source) {
            problem.file = source.name.clone();
            locate(&mut problem, &source.text, mark.span.clone());
        }
        problem
    }

    /// Whether no further problem is kept, so that a caller need not describe it.
    pub fn is_full(&self) -> bool {
        self.problems.len() >= PROBLEMS_MAX
    }

    /// The number of problems kept.
    pub fn len(&self) -> usize {
        self.problems.len()
    }
    /// Whether there were no errors.
    pub fn is_empty(&self) -> bool {
        self.problems.is_empty()
    }
    /// Every problem in the order of the file; those of overrides come last.
    pub fn into_problems(mut self) -> Vec<Problem> {
        let file = self.sources.first().map(|source| source.name.clone());
        self.problems.sort_by_key(|problem| {
            (file.as_ref() != Some(&problem.file), problem.line, problem.column)
        });
        self.problems
    }
}

/// A problem with a whole file, before there is text to point into.
pub(crate) fn whole_file(name: &str, fault: Fault) -> Problem {
    let source = Source { name: name.to_owned(), text: String::new() };
    let reporter = Reporter { sources: vec![source], problems: Vec::new() };
    reporter.problem(&Mark { source: 0, span: 0..0 }, "", fault)
}

/// Reads the bytes of a file as text.
pub(super) fn text_of<'a>(name: &str, bytes: &'a [u8]) -> Result<&'a str, Vec<Problem>> {
    if bytes.len() > FILE_LEN_MAX {
        let found = format!("the file has {} bytes", bytes.len());
        let right =
            format!("an experiment file has at most {FILE_LEN_MAX}; is this the right file?");
        return Err(vec![whole_file(name, Fault::new(found, right))]);
    }
    std::str::from_utf8(bytes).map_err(|error| {
        let before = &bytes[..error.valid_up_to()];
        let line = 1 + before.iter().filter(|&&byte| byte == b'\n').count();
        let found = format!("byte {} (in line {line}) is not UTF-8 text", before.len());
        let right = "an experiment file is TOML in UTF-8: save it as UTF-8, or name another file";
        vec![Problem { line: line as u64, ..whole_file(name, Fault::new(found, right)) }]
    })
}

/// Fills in line, column and excerpt.
fn locate(problem: &mut Problem, text: &str, span: Range<usize>) {
    const EXCERPT_MAX: usize = 120;
    let floor = |at: usize| text.floor_char_boundary(at.min(text.len()));
    let (start, end) = (floor(span.start), floor(span.end.max(span.start)));
    let line_start = text[..start].rfind('\n').map_or(0, |at| at + 1);
    let line_end = text[start..].find('\n').map_or(text.len(), |at| start + at);
    problem.line = 1 + text[..line_start].matches('\n').count() as u64;
    problem.column = 1 + text[line_start..start].chars().count() as u64;
    // A long line is cut to the surroundings of the error.
    let from = match start - line_start > EXCERPT_MAX / 2 && line_end - line_start > EXCERPT_MAX {
        true => floor(start - EXCERPT_MAX / 2),
        false => line_start,
    };
    let to = floor(line_end.min(from + EXCERPT_MAX)).max(start);
    problem.excerpt = text[from..to].chars().map(printable).collect();
    problem.highlight = start - from..end.clamp(start, to) - from;
    if problem.highlight.is_empty() && start < to {
        let next = text[start..].chars().next().map_or(1, char::len_utf8);
        problem.highlight.end += next;
    }
}

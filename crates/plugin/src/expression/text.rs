//! The text of expressions: lists of words and numbers, with the place of each.

use std::fmt;

/// The longest expression.
pub const TEXT_LEN_MAX: usize = 16 << 10;
/// How deeply lists may stand in lists.
pub const DEPTH_MAX: usize = 32;

/// What is wrong, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// The offset of the place, in bytes.
    pub at: usize,
    /// What was found and what would be right.
    pub what: String,
}

impl Wrong {
    pub(crate) fn new(at: usize, what: impl Into<String>) -> Wrong {
        Wrong { at, what: what.into() }
    }
    /// With line and column, which the text determines.
    pub fn describe(&self, text: &str) -> String {
        let before = text.get(..self.at).unwrap_or(text);
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or("").chars().count() + 1;
        format!("line {line}, column {column}: {}", self.what)
    }
}

/// A part of an expression.
#[derive(Clone, Debug)]
pub struct Form {
    /// Where it begins.
    pub at: usize,
    /// What it is.
    pub node: Node,
}

/// Equal if they print the same: places do not matter.
impl PartialEq for Form {
    fn eq(&self, other: &Form) -> bool {
        self.node == other.node
    }
}

/// What a part of an expression is.
#[derive(Clone, Debug, PartialEq)]
pub enum Node {
    /// `12`, `-3`, `0x1f`
    Number(i64),
    /// `10.1.2.3`
    Address(u32),
    /// `10.0.0.0/8`
    Prefix(u32, u8),
    /// `and`, `lba`
    Word(String),
    /// `(and (read-only) (within lba 0 4096))`
    List(Vec<Form>),
}

/// Reads one form, which must be the whole text but for comments, from `;` to the end of a line.
pub fn parse(text: &str) -> Result<Form, Wrong> {
    if text.len() > TEXT_LEN_MAX {
        let len = text.len();
        return Err(Wrong::new(0, format!("{len} bytes of text; at most {TEXT_LEN_MAX}")));
    }
    let mut reader = Reader { text, at: 0 };
    let form = reader.form(0)?;
    reader.skip();
    match reader.rest().chars().next() {
        None => Ok(form),
        Some(_) => Err(Wrong::new(reader.at, "an expression is one form; here begins another")),
    }
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Reader<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }
    fn skip(&mut self) {
        loop {
            let rest = self.rest();
            let blank = rest.len() - rest.trim_start().len();
            self.at += blank;
            if !self.rest().starts_with(';') {
                return;
            }
            let line = self.rest();
            self.at += line.find('\n').unwrap_or(line.len());
        }
    }
    fn form(&mut self, depth: usize) -> Result<Form, Wrong> {
        self.skip();
        let at = self.at;
        let Some(first) = self.rest().chars().next() else {
            return Err(Wrong::new(at, "the text ends here; a form was expected"));
        };
        if first == ')' {
            return Err(Wrong::new(at, "`)` without its `(`"));
        }
        if first != '(' {
            let rest = self.rest();
            let end = rest.find(|c: char| c.is_whitespace() || "();".contains(c));
            let word = &rest[..end.unwrap_or(rest.len())];
            self.at += word.len();
            return Ok(Form { at, node: atom(word, at)? });
        }
        if depth == DEPTH_MAX {
            return Err(Wrong::new(at, format!("more than {DEPTH_MAX} lists in each other")));
        }
        self.at += 1;
        let mut forms = Vec::new();
        loop {
            self.skip();
            match self.rest().chars().next() {
                None => return Err(Wrong::new(at, "this `(` has no `)`")),
                Some(')') => {
                    self.at += 1;
                    return Ok(Form { at, node: Node::List(forms) });
                }
                Some(_) => forms.push(self.form(depth + 1)?),
            }
        }
    }
}

fn atom(word: &str, at: usize) -> Result<Node, Wrong> {
    let digits = word.strip_prefix('-').unwrap_or(word);
    if !digits.starts_with(|c: char| c.is_ascii_digit()) {
        let allowed = |c: char| c.is_ascii_alphanumeric() || "+-*/<>=#?".contains(c);
        return match word.chars().find(|c| !allowed(*c)) {
            Some(c) => Err(Wrong::new(at, format!("{c:?} is not a part of any word"))),
            None => Ok(Node::Word(word.to_owned())),
        };
    }
    if word.contains('.') {
        let (address, len) = match word.split_once('/') {
            None => (word, None),
            Some((address, len)) => (address, Some(len)),
        };
        let wrong = || Wrong::new(at, format!("`{word}` is no address, as 10.0.0.1 or 10.0.0.0/8"));
        let address: std::net::Ipv4Addr = address.parse().map_err(|_| wrong())?;
        let Some(len) = len else { return Ok(Node::Address(address.to_bits())) };
        let len: u8 = len.parse().ok().filter(|len| *len <= 32).ok_or_else(wrong)?;
        return Ok(Node::Prefix(address.to_bits(), len));
    }
    let number = match digits.strip_prefix("0x") {
        Some(hex) if !hex.starts_with(['+', '-']) => {
            i64::from_str_radix(hex, 16).map(|n| if word.starts_with('-') { -n } else { n })
        }
        _ => word.parse(),
    };
    let wrong = |_| Wrong::new(at, format!("`{word}` is no whole number of 64 bits"));
    number.map(Node::Number).map_err(wrong)
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.node {
            Node::Number(number) => write!(f, "{number}"),
            Node::Address(address) => write!(f, "{}", std::net::Ipv4Addr::from_bits(*address)),
            Node::Prefix(address, len) => {
                write!(f, "{}/{len}", std::net::Ipv4Addr::from_bits(*address))
            }
            Node::Word(word) => f.write_str(word),
            Node::List(forms) => {
                f.write_str("(")?;
                for (number, form) in forms.iter().enumerate() {
                    write!(f, "{}{form}", if number > 0 { " " } else { "" })?;
                }
                f.write_str(")")
            }
        }
    }
}

//! Gives each form its type and meaning, or says what is wrong with it and where.

use super::LOCALS_MAX;
use super::core::{
    Binary, Bound, Compare, Number, Outcome, Truth, at_most, binary, compare, constant, part, pick,
};
use super::text::{Form, Node, Wrong};
use crate::abi::field;
use crate::request::{Kind, block, framebuffer, number};

/// The most numbers, truths and outcomes of an expression, what its words stand for included.
const NODES_MAX: usize = 20_000;

/// Fields of every kind: name, offset and width.
const COMMON: &[(&str, usize, u8)] = &[
    ("length", field::LENGTH, 4),
    ("captured", field::CAPTURED, 4),
    ("flow", field::FLOW, 8),
    ("arrival", field::ARRIVAL, 8),
    ("mark", field::MARK, 8),
];

/// Fields of one kind.
fn fields(kind: Kind) -> &'static [(&'static str, usize, u8)] {
    match kind {
        Kind::Packet => &[("interface", field::INTERFACE, 2)],
        Kind::Block => &[
            ("operation", field::OPERATION, 2),
            ("lba", field::LBA, 8),
            ("blocks", field::BLOCKS, 4),
            ("initiator", field::INITIATOR, 4),
        ],
        Kind::Framebuffer => &[
            ("operation", field::OPERATION, 2),
            ("x", field::X, 2),
            ("y", field::Y, 2),
            ("width", field::W, 2),
            ("height", field::H, 2),
            ("from-x", field::FROM_X, 2),
            ("from-y", field::FROM_Y, 2),
            ("value", field::VALUE, 4),
        ],
        Kind::Frame => &[
            ("format", field::OPERATION, 2),
            ("quality", field::CODE, 4),
            ("x", field::X, 2),
            ("y", field::Y, 2),
            ("width", field::W, 2),
            ("height", field::H, 2),
            ("whole-width", field::WIDTH, 2),
            ("whole-height", field::HEIGHT, 2),
            ("number", field::NUMBER, 4),
        ],
    }
}

/// Names of numbers, by kind.
fn names(kind: Kind) -> &'static [(&'static str, u16)] {
    match kind {
        Kind::Block => &[
            ("read", block::READ),
            ("write", block::WRITE),
            ("flush", block::FLUSH),
            ("trim", block::TRIM),
            ("zero", block::ZERO),
            ("compare-and-write", block::COMPARE_AND_WRITE),
            ("reserve", block::RESERVE),
        ],
        Kind::Framebuffer => &[
            ("update", framebuffer::UPDATE),
            ("draw", framebuffer::DRAW),
            ("copy", framebuffer::COPY),
            ("fill", framebuffer::FILL),
            ("key-down", framebuffer::KEY_DOWN),
            ("key-up", framebuffer::KEY_UP),
            ("pointer", framebuffer::POINTER),
            ("cut", framebuffer::CUT),
        ],
        Kind::Packet | Kind::Frame => &[],
    }
}

/// Words for parts of a packet, in the language itself. Ports are those of TCP and UDP in an unfragmented packet, with
/// IPv6 without extension headers; zero otherwise.
const PACKET_WORDS: &[(&str, &str)] = &[
    ("version", "(shift-right (u8 0) 4)"),
    ("header-length", "(if (= version 4) (* 4 (bit-and (u8 0) 15)) 40)"),
    ("protocol", "(if (= version 4) (u8 9) (if (= version 6) (u8 6) 0))"),
    ("source", "(if (= version 4) (u32 12) 0)"),
    ("destination", "(if (= version 4) (u32 16) 0)"),
    ("ttl", "(if (= version 4) (u8 8) (if (= version 6) (u8 7) 0))"),
    ("dscp", "(bit-and 63 (if (= version 4) (shift-right (u8 1) 2) (shift-right (u16 0) 6)))"),
    ("fragment", "(if (= version 4) (bit-and (u16 6) 8191) 0)"),
    ("has-ports", "(if (and (or (= protocol 6) (= protocol 17)) (= fragment 0)) 1 0)"),
    ("source-port", "(if (= has-ports 1) (u16 header-length) 0)"),
    ("destination-port", "(if (= has-ports 1) (u16 (+ header-length 2)) 0)"),
    (
        "tcp-flags",
        "(if (and (= protocol 6) (= fragment 0)) (bit-and (u16 (+ header-length 12)) 511) 0)",
    ),
];

/// Checks an expression about requests of this kind; returns its meaning, and how many locals it needs.
pub(crate) fn check(form: &Form, kind: Kind) -> Result<(Outcome, u32), Wrong> {
    let mut checker = Checker { kind, scope: Vec::new(), next: 0, nodes: 0 };
    let outcome = checker.outcome(form)?;
    Ok((outcome, checker.next))
}

struct Checker {
    kind: Kind,
    scope: Vec<(String, u32)>,
    next: u32,
    nodes: usize,
}

type Checked<T> = Result<T, Wrong>;

/// The head of a list, and its arguments.
fn call(form: &Form) -> Option<(&str, &[Form])> {
    let Node::List(forms) = &form.node else { return None };
    match forms.split_first() {
        Some((Form { node: Node::Word(head), .. }, rest)) => Some((head, rest)),
        _ => None,
    }
}

fn exactly<'a, const N: usize>(
    form: &Form,
    rest: &'a [Form],
    usage: &str,
) -> Checked<&'a [Form; N]> {
    rest.try_into().map_err(|_| Wrong::new(form.at, format!("{N} arguments are needed: {usage}")))
}

impl Checker {
    fn count(&mut self, form: &Form) -> Checked<()> {
        self.nodes += 1;
        if self.nodes > NODES_MAX || self.next + 64 > LOCALS_MAX {
            return Err(Wrong::new(form.at, "the expression is too large"));
        }
        Ok(())
    }
    /// The value and the body of `(let ((name value)) body)`.
    fn binding<'a>(form: &Form, rest: &'a [Form]) -> Checked<(&'a str, &'a Form, &'a Form)> {
        let wrong = || Wrong::new(form.at, "a binding is (let ((NAME NUMBER)) BODY)");
        let [Form { node: Node::List(bindings), .. }, body] = rest else { return Err(wrong()) };
        let [Form { node: Node::List(pair), .. }] = &bindings[..] else { return Err(wrong()) };
        let [Form { node: Node::Word(name), .. }, value] = &pair[..] else { return Err(wrong()) };
        Ok((name, value, body))
    }
    /// Binds a name while `inner` is checked.
    fn bind<T>(
        &mut self,
        form: &Form,
        rest: &[Form],
        inner: fn(&mut Checker, &Form) -> Checked<T>,
    ) -> Checked<(u32, Number, T)> {
        let (name, value, body) = Checker::binding(form, rest)?;
        let value = self.number(value)?;
        let local = self.next;
        self.next += 1;
        self.scope.push((name.to_owned(), local));
        let inner = inner(self, body);
        self.scope.pop();
        Ok((local, value, inner?))
    }
    fn word(&mut self, form: &Form, word: &str) -> Checked<Number> {
        if let Some((_, local)) = self.scope.iter().rev().find(|(name, _)| name == word) {
            return Ok(Number::Local(*local));
        }
        let own = fields(self.kind).iter().chain(COMMON).find(|(name, ..)| *name == word);
        if let Some((_, at, width)) = own {
            return Ok(Number::Field(*at, *width));
        }
        if let Some((_, value)) = names(self.kind).iter().find(|(name, _)| *name == word) {
            return Ok(constant(i64::from(*value)));
        }
        let words = if self.kind == Kind::Packet { PACKET_WORDS } else { &[] };
        if let Some((_, text)) = words.iter().find(|(name, _)| *name == word) {
            let meaning = super::text::parse(text)?;
            // What it stands for is about the packet, not about names that are bound here.
            let scope = std::mem::take(&mut self.scope);
            let number = self.number(&Form { at: form.at, ..meaning });
            self.scope = scope;
            return number.map_err(|wrong| Wrong { at: form.at, ..wrong });
        }
        let known = fields(self.kind).iter().chain(COMMON).map(|(name, ..)| *name);
        let known: Vec<&str> = known.chain(words.iter().map(|(name, _)| *name)).collect();
        let (kind, known) = (self.kind.name(), known.join(", "));
        Err(Wrong::new(form.at, format!("a {kind} has no `{word}`; it has {known}")))
    }
    fn number(&mut self, form: &Form) -> Checked<Number> {
        self.count(form)?;
        match &form.node {
            Node::Number(number) => return Ok(constant(*number)),
            Node::Address(address) => return Ok(constant(i64::from(*address))),
            Node::Prefix(..) => {
                return Err(Wrong::new(form.at, "a prefix stands in (in NUMBER PREFIX) only"));
            }
            Node::Word(word) => return self.word(form, word),
            Node::List(_) => {}
        }
        let none = || Wrong::new(form.at, "a number was expected: (+ 1 length)");
        let (head, rest) = call(form).ok_or_else(none)?;
        let fold = match head {
            "+" => Some(Binary::Add),
            "-" => Some(Binary::Subtract),
            "*" => Some(Binary::Multiply),
            "/" => Some(Binary::Divide),
            "mod" => Some(Binary::Modulo),
            "bit-and" => Some(Binary::And),
            "bit-or" => Some(Binary::Or),
            "bit-xor" => Some(Binary::Xor),
            "shift-left" => Some(Binary::Left),
            "shift-right" => Some(Binary::Right),
            _ => None,
        };
        if let Some(operation) = fold {
            let [a, b] = exactly(form, rest, &format!("({head} NUMBER NUMBER)"))?;
            return Ok(binary(operation, self.number(a)?, self.number(b)?));
        }
        match head {
            "min" | "max" => {
                let [a, b] = exactly(form, rest, &format!("({head} NUMBER NUMBER)"))?;
                let (a, b) = (self.number(a)?, self.number(b)?);
                let mut bound = Bound::new(self.next);
                let (a, b) = (bound.bind(a), bound.bind(b));
                self.next = bound.next();
                Ok(bound.number(pick(head == "min", a, b)))
            }
            "u8" | "u16" | "u32" => {
                let [at] = exactly(form, rest, &format!("({head} OFFSET)"))?;
                let width = match head {
                    "u8" => 1,
                    "u16" => 2,
                    _ => 4,
                };
                Ok(Number::Data(width, Box::new(self.number(at)?)))
            }
            "if" => {
                let [test, a, b] = exactly(form, rest, "(if TRUTH NUMBER NUMBER)")?;
                let test = Box::new(self.truth(test)?);
                Ok(Number::If(test, Box::new(self.number(a)?), Box::new(self.number(b)?)))
            }
            "let" => {
                let (local, value, inner) = self.bind(form, rest, Checker::number)?;
                Ok(Number::Let(local, Box::new(value), Box::new(inner)))
            }
            _ => Err(Wrong::new(form.at, format!("`{head}` gives no number"))),
        }
    }
    fn truths(&mut self, rest: &[Form]) -> Checked<Vec<Truth>> {
        rest.iter().map(|form| self.truth(form)).collect()
    }
    fn truth(&mut self, form: &Form) -> Checked<Truth> {
        self.count(form)?;
        match &form.node {
            Node::Word(word) if word == "#t" || word == "#f" => {
                return Ok(Truth::Const(word == "#t"));
            }
            _ => {}
        }
        let none = || Wrong::new(form.at, "true or false was expected: (< length 100), #t or #f");
        let (head, rest) = call(form).ok_or_else(none)?;
        match head {
            "=" | "<" | "<=" | ">" | ">=" => {
                let [a, b] = exactly(form, rest, &format!("({head} NUMBER NUMBER)"))?;
                let (a, b) = (self.number(a)?, self.number(b)?);
                Ok(match head {
                    "=" => compare(Compare::Equal, a, b),
                    "<" => compare(Compare::Less, a, b),
                    "<=" => at_most(a, b),
                    ">" => compare(Compare::Less, b, a),
                    _ => at_most(b, a),
                })
            }
            "and" => Ok(Truth::All(self.truths(rest)?)),
            "or" => Ok(Truth::Any(self.truths(rest)?)),
            "not" => {
                let [truth] = exactly(form, rest, "(not TRUTH)")?;
                Ok(Truth::Not(Box::new(self.truth(truth)?)))
            }
            "if" => {
                let [test, a, b] = exactly(form, rest, "(if TRUTH TRUTH TRUTH)")?;
                let test = Box::new(self.truth(test)?);
                Ok(Truth::If(test, Box::new(self.truth(a)?), Box::new(self.truth(b)?)))
            }
            "let" => {
                let (local, value, inner) = self.bind(form, rest, Checker::truth)?;
                Ok(Truth::Let(local, Box::new(value), Box::new(inner)))
            }
            "within" => self.within(form, rest),
            "in" => {
                let [value, prefix] = exactly(form, rest, "(in NUMBER PREFIX)")?;
                let Node::Prefix(address, len) = prefix.node else {
                    return Err(Wrong::new(prefix.at, "a prefix was expected: 10.0.0.0/8"));
                };
                let mask = u32::MAX.checked_shl(32 - u32::from(len)).unwrap_or(0);
                let masked = binary(Binary::And, self.number(value)?, constant(i64::from(mask)));
                Ok(compare(Compare::Equal, masked, constant(i64::from(address & mask))))
            }
            "read-only" if self.kind == Kind::Block => {
                let [] = exactly(form, rest, "(read-only)")?;
                let operation = || Number::Field(field::OPERATION, 2);
                let safe = [block::READ, block::FLUSH, block::RESERVE];
                let is = |which| compare(Compare::Equal, operation(), constant(i64::from(which)));
                Ok(Truth::Any(safe.into_iter().map(is).collect()))
            }
            "inside" if matches!(self.kind, Kind::Framebuffer | Kind::Frame) => {
                self.inside(form, rest)
            }
            _ => Err(Wrong::new(form.at, format!("`{head}` is neither true nor false"))),
        }
    }
    /// A number from `low` up to, but not including, `high`; `lba` with all of its blocks.
    fn within(&mut self, form: &Form, rest: &[Form]) -> Checked<Truth> {
        let [value, low, high] = exactly(form, rest, "(within NUMBER LOW HIGH)")?;
        let is_lba = self.kind == Kind::Block && value.node == Node::Word("lba".to_owned());
        let numbers = [self.number(value)?, self.number(low)?, self.number(high)?];
        let mut bound = Bound::new(self.next);
        let [value, low, high] = numbers.map(|number| bound.bind(number));
        let blocks = Number::Field(field::BLOCKS, 4);
        let mut truths = vec![at_most(low, value.clone())];
        if is_lba {
            // In an order in which nothing wraps.
            truths.push(at_most(constant(0), value.clone()));
            truths.push(at_most(blocks.clone(), high.clone()));
            truths.push(at_most(value.clone(), binary(Binary::Subtract, high.clone(), blocks)));
        }
        truths.push(compare(Compare::Less, value, high));
        self.next = bound.next();
        Ok(bound.truth(Truth::All(truths)))
    }
    /// Whether the whole rectangle of the request lies in the given one.
    fn inside(&mut self, form: &Form, rest: &[Form]) -> Checked<Truth> {
        let numbers = self.rectangle(form, rest, "(inside X Y WIDTH HEIGHT)")?;
        let mut bound = Bound::new(self.next);
        let [x, y, w, h] = numbers.map(|number| bound.bind(number));
        let mut truths = Vec::new();
        for (at, len, own, own_len) in [(x, w, field::X, field::W), (y, h, field::Y, field::H)] {
            let own = Number::Field(own, 2);
            let end = binary(Binary::Add, own.clone(), Number::Field(own_len, 2));
            let small = |number: Number| {
                [at_most(constant(0), number.clone()), at_most(number, constant(65_536))]
            };
            truths.extend(small(at.clone()));
            truths.extend(small(len.clone()));
            truths.push(at_most(at.clone(), own));
            truths.push(at_most(end, binary(Binary::Add, at, len)));
        }
        self.next = bound.next();
        Ok(bound.truth(Truth::All(truths)))
    }
    fn rectangle(&mut self, form: &Form, rest: &[Form], usage: &str) -> Checked<[Number; 4]> {
        let [x, y, w, h] = exactly(form, rest, usage)?;
        Ok([self.number(x)?, self.number(y)?, self.number(w)?, self.number(h)?])
    }
    fn outcome(&mut self, form: &Form) -> Checked<Outcome> {
        self.count(form)?;
        let Some((head, rest)) = call(form) else { return Ok(Outcome::Test(self.truth(form)?)) };
        match head {
            "if" => {
                let [test, a, b] = exactly(form, rest, "(if TRUTH VERDICT VERDICT)")?;
                let test = self.truth(test)?;
                Ok(Outcome::If(test, Box::new(self.outcome(a)?), Box::new(self.outcome(b)?)))
            }
            "let" => {
                let (local, value, inner) = self.bind(form, rest, Checker::outcome)?;
                Ok(Outcome::Let(local, value, Box::new(inner)))
            }
            "allow" => {
                let [] = exactly(form, rest, "(allow)")?;
                Ok(Outcome::Test(Truth::Const(true)))
            }
            "deny" if rest.is_empty() => Ok(Outcome::Test(Truth::Const(false))),
            "deny" => {
                let [code] = exactly(form, rest, "(deny) or (deny CODE)")?;
                let most = match self.kind {
                    Kind::Block => block::SENSE_MAX,
                    _ => u32::MAX,
                };
                self.coded(number::DENY, code, 0, constant(i64::from(most)))
            }
            _ => match self.particular(form, head, rest)? {
                Some(outcome) => Ok(outcome),
                None => Ok(Outcome::Test(self.truth(form)?)),
            },
        }
    }
    /// A verdict whose argument is the code, from `low` to `high`.
    fn coded(&mut self, verdict: u8, code: &Form, low: i64, high: Number) -> Checked<Outcome> {
        let code = self.number(code)?;
        let mut bound = Bound::new(self.next);
        let code = bound.bind(code);
        let guard =
            Truth::All(vec![at_most(constant(low), code.clone()), at_most(code.clone(), high)]);
        self.next = bound.next();
        Ok(bound.outcome(Outcome::Write { verdict, guard, fields: vec![(field::CODE, 4, code)] }))
    }
    /// The verdicts of one kind alone.
    fn particular(&mut self, form: &Form, head: &str, rest: &[Form]) -> Checked<Option<Outcome>> {
        let u16_max = constant(i64::from(u16::MAX));
        let outcome = match (self.kind, head) {
            (Kind::Packet, "to-interface") => {
                let [code] = exactly(form, rest, "(to-interface NUMBER)")?;
                self.coded(number::TO_INTERFACE, code, 0, u16_max)?
            }
            (Kind::Packet, "to-flow") => {
                let [code] = exactly(form, rest, "(to-flow NUMBER)")?;
                self.coded(number::TO_FLOW, code, 0, constant(i64::from(u32::MAX)))?
            }
            (Kind::Packet, "clone") => {
                let [code] = exactly(form, rest, "(clone INTERFACE)")?;
                self.coded(number::CLONE, code, 0, u16_max)?
            }
            (Kind::Block, "remap") => {
                let [lba, blocks] = exactly(form, rest, "(remap LBA BLOCKS)")?;
                let (lba, blocks) = (self.number(lba)?, self.number(blocks)?);
                let mut bound = Bound::new(self.next);
                let (lba, blocks) = (bound.bind(lba), bound.bind(blocks));
                let asked = bound.bind(Number::Field(field::BLOCKS, 4));
                let blocks = bound.bind(pick(true, blocks, asked.clone()));
                let none = compare(Compare::Equal, asked, constant(0));
                let some = at_most(constant(1), blocks.clone());
                let guard = Truth::All(vec![
                    at_most(constant(0), lba.clone()),
                    at_most(constant(0), blocks.clone()),
                    Truth::Any(vec![none, some]),
                ]);
                let fields = vec![(field::LBA, 8, lba), (field::BLOCKS, 4, blocks)];
                self.next = bound.next();
                bound.outcome(Outcome::Write { verdict: number::REMAP, guard, fields })
            }
            (Kind::Framebuffer, "clip") | (Kind::Frame, "crop") => {
                let numbers = self.rectangle(form, rest, &format!("({head} X Y WIDTH HEIGHT)"))?;
                let verdict = if head == "clip" { number::CLIP } else { number::CROP };
                let (outcome, next) = part(verdict, numbers, self.next);
                self.next = next;
                outcome
            }
            (Kind::Framebuffer, "move") => {
                let [x, y] = exactly(form, rest, "(move X Y)")?;
                let (x, y) = (self.number(x)?, self.number(y)?);
                let mut bound = Bound::new(self.next);
                let (x, y) = (bound.bind(x), bound.bind(y));
                let fits = |at: &Number, len| {
                    let most = binary(Binary::Subtract, u16_max.clone(), Number::Field(len, 2));
                    [at_most(constant(0), at.clone()), at_most(at.clone(), most)]
                };
                let guard = [fits(&x, field::W), fits(&y, field::H)].concat();
                let fields = vec![(field::X, 2, x), (field::Y, 2, y)];
                self.next = bound.next();
                let guard = Truth::All(guard);
                bound.outcome(Outcome::Write { verdict: number::MOVE, guard, fields })
            }
            (Kind::Frame, "scale") => {
                let [w, h] = exactly(form, rest, "(scale WIDTH HEIGHT)")?;
                let (w, h) = (self.number(w)?, self.number(h)?);
                let mut bound = Bound::new(self.next);
                let (w, h) = (bound.bind(w), bound.bind(h));
                let w = bound.bind(pick(true, w, Number::Field(field::W, 2)));
                let h = bound.bind(pick(true, h, Number::Field(field::H, 2)));
                let guard =
                    Truth::All([&w, &h].map(|side| at_most(constant(1), side.clone())).to_vec());
                let fields = vec![(field::W, 2, w), (field::H, 2, h)];
                self.next = bound.next();
                bound.outcome(Outcome::Write { verdict: number::SCALE, guard, fields })
            }
            (Kind::Frame, "recompress") => {
                let [quality] = exactly(form, rest, "(recompress QUALITY)")?;
                let quality = self.number(quality)?;
                let mut bound = Bound::new(self.next);
                let quality = bound.bind(quality);
                let quality = bound.bind(pick(true, quality, Number::Field(field::CODE, 4)));
                let guard = at_most(constant(1), quality.clone());
                let fields = vec![(field::CODE, 4, quality)];
                self.next = bound.next();
                bound.outcome(Outcome::Write { verdict: number::QUALITY, guard, fields })
            }
            _ => return Ok(None),
        };
        Ok(Some(outcome))
    }
}

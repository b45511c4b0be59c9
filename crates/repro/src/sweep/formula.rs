//! Formulas of `repro.toml`, made of constants, variables and quantities of runs.
//!
//! ```text
//! all(tail.goodput < packets.goodput)           a quantity of two runs, compared
//! 100 * lossy[control = 'bbr', loss = 5].share  of the run with these values of its variables
//! rising(slow.time / clean.time - 1)            a variable without a value: a list over all its values
//! ```
//!
//! A formula has no loops or definitions. Operations on a list apply to each of its values; [`FUNCTIONS`] is the
//! complete list of functions.

use std::fmt;

/// The value of a formula.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Val {
    Number(f64),
    Truth(bool),
    Text(String),
    List(Vec<Val>),
}

impl From<f64> for Val {
    fn from(number: f64) -> Val {
        Val::Number(number)
    }
}
impl From<u64> for Val {
    fn from(number: u64) -> Val {
        Val::Number(number as f64)
    }
}
impl From<&str> for Val {
    fn from(text: &str) -> Val {
        Val::Text(text.to_owned())
    }
}
impl<T: Into<Val>> From<Vec<T>> for Val {
    fn from(list: Vec<T>) -> Val {
        Val::List(list.into_iter().map(Into::into).collect())
    }
}

/// As written in a setting: numbers to 12 decimals, which are picoseconds for times in seconds.
impl fmt::Display for Val {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Val::Number(number) if number.fract() == 0.0 => write!(f, "{number:.0}"),
            Val::Number(number) => {
                let text = format!("{number:.12}");
                f.write_str(text.trim_end_matches('0').trim_end_matches('.'))
            }
            Val::Truth(truth) => write!(f, "{truth}"),
            Val::Text(text) => f.write_str(text),
            Val::List(list) => {
                let list: Vec<String> = list.iter().map(Val::to_string).collect();
                write!(f, "[{}]", list.join(", "))
            }
        }
    }
}

impl Val {
    /// The values of a list; a single value as a list of one.
    pub(crate) fn values(&self) -> &[Val] {
        match self {
            Val::List(list) => list,
            one => std::slice::from_ref(one),
        }
    }
    pub(crate) fn number(&self) -> Result<f64, String> {
        match self {
            Val::Number(number) => Ok(*number),
            other => Err(format!("`{other}` is not a number")),
        }
    }
    fn truth(&self) -> Result<bool, String> {
        match self {
            Val::Truth(truth) => Ok(*truth),
            other => Err(format!("`{other}` is neither true nor false")),
        }
    }
    pub(crate) fn text(&self) -> Result<&str, String> {
        match self {
            Val::Text(text) => Ok(text),
            other => Err(format!("`{other}` is not a text; write '...'")),
        }
    }
    pub(crate) fn numbers(&self) -> Result<Vec<f64>, String> {
        self.values().iter().map(Val::number).collect()
    }
}

/// A parsed formula.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Node {
    Value(Val),
    Name(String),
    Call(String, Vec<Node>),
    /// `run[variable = value].quantity`.
    Of {
        run: String,
        given: Vec<(String, Node)>,
        quantity: String,
    },
    Apply(&'static str, Box<[Node; 2]>),
}

/// Operators by precedence, the loosest first; of two of which one is a prefix of the other, the longer stands first.
const OPERATORS: [&[&str]; 5] =
    [&["or"], &["and"], &["<=", ">=", "<", ">", "="], &["+", "-"], &["*", "/"]];
/// Most nested parentheses.
const DEPTH_MAX: usize = 32;
/// A function: its name, its number of arguments, and its result.
pub(crate) type Function = (&'static str, usize, &'static str);
/// Functions of values; a list may stand for a value.
pub(crate) const FUNCTIONS: &[Function] = &[
    ("abs", 1, "the absolute value"),
    ("floor", 1, "the largest whole number that is not greater"),
    ("sqrt", 1, "the square root"),
    ("log2", 1, "the logarithm to base 2"),
    ("not", 1, "whether this does not hold"),
    ("if", 3, "the second if the first holds, else the third"),
    ("both", 2, "one list after the other"),
    ("range", 2, "whole numbers from the first up to but not including the second"),
    ("below", 2, "the values of a list below this"),
    ("all", 1, "whether all hold"),
    ("any", 1, "whether any holds"),
    ("rising", 1, "whether each is greater than the one before"),
    ("sum", 1, "of a list"),
    ("mean", 1, "of a list"),
    ("deviation", 1, "the standard deviation of a list"),
    ("median", 1, "of a list; the upper one of two middle values"),
    ("min", 1, "of a list"),
    ("max", 1, "of a list"),
    ("number", 1, "the length of a list"),
    ("sorted", 1, "a list in ascending order"),
    ("from", 2, "the values of a list from this index on; the first has index 0"),
    ("first", 1, "of a list"),
    ("gaps", 1, "the differences of successive values"),
    ("longest", 1, "the length of the longest sequence that holds"),
    ("shown", 2, "a number as a text with this many decimals"),
];

struct Parser<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
}

/// An error, and its byte offset.
pub(crate) type Wrong = (usize, String);

/// Parses a formula.
///
/// # Errors
/// What is wrong, and where.
pub(crate) fn parse(text: &str) -> Result<Node, Wrong> {
    let mut parser = Parser { text, at: 0, depth: 0 };
    let node = parser.level(0)?;
    match parser.rest().trim_start() {
        "" => Ok(node),
        rest => parser.wrong(format!("unexpected `{rest}` after the formula")),
    }
}

fn is_name(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-')
}

impl<'a> Parser<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }
    fn wrong<T>(&self, found: impl Into<String>) -> Result<T, Wrong> {
        Err((self.at, found.into()))
    }
    fn space(&mut self) {
        self.at = self.text.len() - self.rest().trim_start().len();
    }
    fn take(&mut self, token: &str) -> bool {
        self.space();
        let word = token.chars().all(char::is_alphabetic);
        let taken = self.rest().strip_prefix(token);
        // A word is an operator only if it ends here.
        let taken = taken.filter(|rest| !(word && rest.starts_with(is_name)));
        self.at += taken.map_or(0, |_| token.len());
        taken.is_some()
    }
    fn expect(&mut self, token: &str) -> Result<(), Wrong> {
        match self.take(token) {
            true => Ok(()),
            false => self.wrong(format!("`{token}` is missing")),
        }
    }
    /// A name. `-` would be a subtraction, so names of runs and variables have `_`.
    fn name(&mut self) -> Result<String, Wrong> {
        self.space();
        let end = self.rest().find(|c: char| !(c.is_alphanumeric() || c == '_'));
        let name = &self.rest()[..end.unwrap_or(self.rest().len())];
        if !name.starts_with(|c: char| c.is_alphabetic()) {
            return self.wrong("a number, a name or a `'text'` is missing");
        }
        self.at += name.len();
        Ok(name.to_owned())
    }

    fn level(&mut self, level: usize) -> Result<Node, Wrong> {
        let Some(operators) = OPERATORS.get(level) else { return self.primary() };
        let mut left = self.level(level + 1)?;
        while let Some(&operator) = operators.iter().find(|operator| self.take(operator)) {
            let right = self.level(level + 1)?;
            left = Node::Apply(operator, Box::new([left, right]));
        }
        Ok(left)
    }

    fn within<T>(&mut self, read: impl Fn(&mut Self) -> Result<T, Wrong>) -> Result<T, Wrong> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return self.wrong("too many nested parentheses");
        }
        let read = read(self);
        self.depth -= 1;
        read
    }

    fn primary(&mut self) -> Result<Node, Wrong> {
        self.within(|parser| parser.part())
    }

    fn part(&mut self) -> Result<Node, Wrong> {
        if self.take("(") {
            let node = self.level(0)?;
            self.expect(")")?;
            return Ok(node);
        }
        if self.take("-") {
            let zero = Node::Value(Val::Number(0.0));
            return Ok(Node::Apply("-", Box::new([zero, self.primary()?])));
        }
        if self.take("'") {
            let Some((text, _)) = self.rest().split_once('\'') else {
                return self.wrong("this text is not closed; end it with `'`");
            };
            self.at += text.len() + 1;
            return Ok(Node::Value(text.into()));
        }
        if self.rest().starts_with(|c: char| c.is_ascii_digit()) {
            return self.digits();
        }
        let name = self.name()?;
        if self.take("(") {
            return Ok(Node::Call(name, self.list(")", Parser::argument)?));
        }
        let given = match self.take("[") {
            true => self.list("]", Parser::given)?,
            false if self.rest().starts_with('.') => Vec::new(),
            false => return Ok(Node::Name(name)),
        };
        self.expect(".")?;
        Ok(Node::Of { run: name, given, quantity: self.name()? })
    }

    fn digits(&mut self) -> Result<Node, Wrong> {
        let digit = |c: char| c.is_ascii_digit() || matches!(c, '.' | '_');
        let rest = self.rest();
        let mut end = rest.find(|c| !digit(c)).unwrap_or(rest.len());
        if let Some(power) = rest[end..].strip_prefix('e') {
            let signed = power.strip_prefix('-').unwrap_or(power);
            let digits = signed.find(|c: char| !c.is_ascii_digit()).unwrap_or(signed.len());
            end += 1 + (power.len() - signed.len()) + digits;
        }
        let Ok(number) = rest[..end].replace('_', "").parse::<f64>() else {
            return self.wrong(format!("`{}` is not a number", &rest[..end]));
        };
        self.at += end;
        Ok(Node::Value(Val::Number(number)))
    }

    fn argument(&mut self) -> Result<Node, Wrong> {
        self.level(0)
    }

    fn given(&mut self) -> Result<(String, Node), Wrong> {
        let name = self.name()?;
        self.expect("=")?;
        Ok((name, self.level(0)?))
    }

    fn list<T>(
        &mut self,
        end: &str,
        read: fn(&mut Self) -> Result<T, Wrong>,
    ) -> Result<Vec<T>, Wrong> {
        let mut list = Vec::new();
        while !self.take(end) {
            if !list.is_empty() {
                self.expect(",")?;
            }
            list.push(read(self)?);
        }
        Ok(list)
    }
}

impl Node {
    /// Visits the formula and all its parts.
    pub(crate) fn visit(&self, see: &mut dyn FnMut(&Node)) {
        see(self);
        match self {
            Node::Value(_) | Node::Name(_) => {}
            Node::Call(_, parts) => parts.iter().for_each(|part| part.visit(see)),
            Node::Of { given, .. } => given.iter().for_each(|(_, part)| part.visit(see)),
            Node::Apply(_, parts) => parts.iter().for_each(|part| part.visit(see)),
        }
    }
}

/// Applies an operator to two values, or element by element to lists.
pub(crate) fn apply(operator: &str, a: &Val, b: &Val) -> Result<Val, String> {
    match (a, b) {
        (Val::List(a), Val::List(b)) if a.len() == b.len() => {
            a.iter().zip(b).map(|(a, b)| apply(operator, a, b)).collect::<Result<_, _>>()
        }
        (Val::List(a), Val::List(b)) => {
            return Err(format!("lists of {} and {} values cannot be combined", a.len(), b.len()));
        }
        (Val::List(a), b) => a.iter().map(|a| apply(operator, a, b)).collect::<Result<_, _>>(),
        (a, Val::List(b)) => b.iter().map(|b| apply(operator, a, b)).collect::<Result<_, _>>(),
        (a, b) => return one(operator, a, b),
    }
    .map(Val::List)
}

fn one(operator: &str, a: &Val, b: &Val) -> Result<Val, String> {
    match operator {
        "or" => return Ok(Val::Truth(a.truth()? | b.truth()?)),
        "and" => return Ok(Val::Truth(a.truth()? & b.truth()?)),
        "=" => return Ok(Val::Truth(a == b)),
        _ => {}
    }
    let (a, b) = (a.number()?, b.number()?);
    Ok(match operator {
        "+" => Val::Number(a + b),
        "-" => Val::Number(a - b),
        "*" => Val::Number(a * b),
        "/" => Val::Number(a / b),
        "<" => Val::Truth(a < b),
        ">" => Val::Truth(a > b),
        "<=" => Val::Truth(a <= b),
        _ => Val::Truth(a >= b),
    })
}

/// Calls a function of values.
///
/// # Errors
/// The arguments are wrong.
pub(crate) fn call(name: &str, given: &[Val]) -> Result<Val, String> {
    let [first, rest @ ..] = given else { return Err(format!("`{name}` has no arguments")) };
    if let (Val::List(list), "abs" | "floor" | "sqrt" | "log2" | "not") = (first, name) {
        return list
            .iter()
            .map(|one| call(name, std::slice::from_ref(one)))
            .collect::<Result<_, _>>()
            .map(Val::List);
    }
    let fold = |from: f64, of: fn(f64, f64) -> f64| -> Result<Val, String> {
        Ok(Val::Number(first.numbers()?.into_iter().fold(from, of)))
    };
    let truths = || first.values().iter().map(Val::truth).collect::<Result<Vec<bool>, _>>();
    Ok(match (name, rest) {
        ("abs", _) => Val::Number(first.number()?.abs()),
        ("floor", _) => Val::Number(first.number()?.floor()),
        ("sqrt", _) => Val::Number(first.number()?.sqrt()),
        ("log2", _) => Val::Number(first.number()?.log2()),
        ("not", _) => Val::Truth(!first.truth()?),
        ("if", [yes, no]) => if first.truth()? { yes } else { no }.clone(),
        ("both", [second]) => Val::List([first.values(), second.values()].concat()),
        ("range", [end]) => {
            let (from, to) = (first.number()? as u64, end.number()? as u64);
            if to.saturating_sub(from) > VALUES_MAX as u64 {
                return Err(format!("from {from} to {to} is too long a list"));
            }
            (from..to).collect::<Vec<u64>>().into()
        }
        ("below", [limit]) => {
            let limit = limit.number()?;
            first.numbers()?.into_iter().filter(|&one| one < limit).collect::<Vec<f64>>().into()
        }
        ("all", _) => Val::Truth(truths()?.into_iter().all(|one| one)),
        ("any", _) => Val::Truth(truths()?.into_iter().any(|one| one)),
        ("rising", _) => Val::Truth(first.numbers()?.windows(2).all(|pair| pair[0] < pair[1])),
        ("sum", _) => fold(0.0, |a, b| a + b)?,
        ("mean", _) => Val::Number(mean(&first.numbers()?)),
        ("deviation", _) => {
            let (all, mean) = (first.numbers()?, mean(&first.numbers()?));
            let squares: f64 = all.iter().map(|one| (one - mean).powi(2)).sum();
            Val::Number((squares / all.len() as f64).sqrt())
        }
        ("median", _) => {
            let all = sorted(first)?;
            Val::Number(all.get(all.len() / 2).copied().unwrap_or(f64::NAN))
        }
        ("min", _) => fold(f64::INFINITY, f64::min)?,
        ("max", _) => fold(f64::NEG_INFINITY, f64::max)?,
        ("sorted", _) => sorted(first)?.into(),
        ("from", [place]) => {
            let place = place.number()? as usize;
            Val::List(first.values().get(place..).unwrap_or_default().to_vec())
        }
        ("first", _) => first.values().first().ok_or("the list is empty")?.clone(),
        ("gaps", _) => {
            let all = first.numbers()?;
            all.windows(2).map(|pair| pair[1] - pair[0]).collect::<Vec<f64>>().into()
        }
        ("longest", _) => {
            let truths = truths()?;
            let runs = truths.split(|holds| !holds).map(<[bool]>::len);
            (runs.max().unwrap_or(0) as u64).into()
        }
        ("shown", [digits]) => {
            let digits = digits.number()?.clamp(0.0, 12.0) as usize;
            Val::Text(format!("{:.digits$}", first.number()?))
        }
        ("number", _) => (first.values().len() as u64).into(),
        _ => return Err(format!("`{name}` has the wrong arguments")),
    })
}

fn sorted(list: &Val) -> Result<Vec<f64>, String> {
    let mut all = list.numbers()?;
    all.sort_by(f64::total_cmp);
    Ok(all)
}

/// The longest list.
pub(crate) const VALUES_MAX: usize = 4096;

/// The mean of some values.
pub(crate) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// A text with formulas in it: `$name` or `$(formula)`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Template(pub(crate) Vec<Part>);

/// A part of such a text.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Part {
    Text(String),
    Formula(Node),
}

impl Template {
    /// Parses a text.
    ///
    /// # Errors
    /// What is wrong with a formula in it, and where.
    pub(crate) fn parse(text: &str) -> Result<Template, Wrong> {
        let (mut parts, mut rest) = (Vec::new(), text);
        while let Some((before, after)) = rest.split_once('$') {
            let at = text.len() - after.len();
            parts.push(Part::Text(before.to_owned()));
            let mut parser = Parser { text, at, depth: 0 };
            let node = match parser.rest().starts_with('(') {
                true => parser.primary()?,
                false => Node::Name(parser.name()?),
            };
            parts.push(Part::Formula(node));
            rest = parser.rest();
        }
        parts.push(Part::Text(rest.to_owned()));
        Ok(Template(parts))
    }
    /// Its formulas.
    pub(crate) fn formulas(&self) -> impl Iterator<Item = &Node> {
        self.0.iter().filter_map(|part| match part {
            Part::Formula(node) => Some(node),
            Part::Text(_) => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The value of a formula without names.
    fn value(text: &str) -> Result<Val, String> {
        fn of(node: &Node) -> Result<Val, String> {
            match node {
                Node::Value(value) => Ok(value.clone()),
                Node::Apply(operator, parts) => apply(operator, &of(&parts[0])?, &of(&parts[1])?),
                Node::Call(name, given) => {
                    call(name, &given.iter().map(of).collect::<Result<Vec<_>, _>>()?)
                }
                other => Err(format!("{other:?}")),
            }
        }
        of(&parse(text).map_err(|(at, found)| format!("{at}: {found}"))?)
    }

    #[test]
    fn operators_bind_as_in_arithmetic_and_go_from_left_to_right() {
        assert_eq!(value("10 - 2 * 3 - 1"), Ok(3.0.into()));
        assert_eq!(value("8 / 2 / 2 + -1"), Ok(1.0.into()));
        assert_eq!(value("2 * (1 + 1e-1)"), Ok(2.2.into()));
        assert_eq!(value("1 < 2 and 3 <= 3 or 1 > 2"), Ok(Val::Truth(true)));
        assert_eq!(value("'a' = 'a'"), Ok(Val::Truth(true)));
    }

    #[test]
    fn what_is_done_with_a_list_is_done_with_each_of_its_values() {
        assert_eq!(value("2 * range(1, 4)"), Ok(vec![2.0, 4.0, 6.0].into()));
        assert_eq!(value("all(range(1, 3) < range(2, 4))"), Ok(Val::Truth(true)));
        assert_eq!(value("deviation(both(80, 120))"), Ok(20.0.into()));
        assert_eq!(value("max(below(range(0, 9), 5))"), Ok(4.0.into()));
        assert_eq!(value("median(both(3, both(9, 1)))"), Ok(3.0.into()));
        assert_eq!(value("rising(both(2, 2))"), Ok(Val::Truth(false)));
        let unlike = value("range(0, 2) + range(0, 3)").unwrap_err();
        assert_eq!(unlike, "lists of 2 and 3 values cannot be combined");
        assert!(value("range(0, 1e9)").is_err(), "the list is too long");
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        let at = |text: &str| parse(text).unwrap_err();
        assert_eq!(at("1 +"), (3, "a number, a name or a `'text'` is missing".to_owned()));
        assert_eq!(at("(1 + 2"), (6, "`)` is missing".to_owned()));
        assert_eq!(at("run[a 1].b").0, 6);
        assert_eq!(at("1 2").1, "unexpected `2` after the formula");
        assert_eq!(at(&"(".repeat(100)).1, "too many nested parentheses");
    }

    #[test]
    fn a_text_has_formulas_in_it_and_shows_numbers_as_settings_do() {
        let Template(parts) = Template::parse("{ rate = $rate bit/s, $(1 + 1) }").unwrap();
        assert_eq!(parts[1], Part::Formula(Node::Name("rate".to_owned())));
        assert_eq!(parts[2], Part::Text(" bit/s, ".to_owned()));
        assert_eq!(parts[4], Part::Text(" }".to_owned()));
        let shown = [Val::from(155e6), 0.018.into(), (0.02 - 0.002).into(), vec![3.0, 4.0].into()];
        assert_eq!(shown.map(|value| value.to_string()), ["155000000", "0.018", "0.018", "[3, 4]"]);
    }
}

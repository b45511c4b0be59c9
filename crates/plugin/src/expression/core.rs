//! What an expression means: a tree of numbers, truths and outcomes, the same for the interpreter and the compiler.
//!
//! It is total: there are no loops, a division by zero is zero, data beyond what was captured is zero, sums wrap,
//! and a verdict whose arguments would exceed the request becomes a denial.

use crate::abi::field;
use crate::request::number;

/// A number of 64 bits.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Number {
    Const(i64),
    /// A field of the descriptor: offset and width in bytes.
    Field(usize, u8),
    /// Data: width in bytes, and where; big-endian, as on the wire.
    Data(u8, Box<Number>),
    Local(u32),
    Binary(Binary, Box<Number>, Box<Number>),
    If(Box<Truth>, Box<Number>, Box<Number>),
    Let(u32, Box<Number>, Box<Number>),
}

/// An operation on two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Binary {
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo,
    And,
    Or,
    Xor,
    Left,
    Right,
}

impl Binary {
    pub(crate) fn apply(self, a: i64, b: i64) -> i64 {
        match self {
            Binary::Add => a.wrapping_add(b),
            Binary::Subtract => a.wrapping_sub(b),
            Binary::Multiply => a.wrapping_mul(b),
            Binary::Divide if b == 0 => 0,
            Binary::Divide => a.wrapping_div(b),
            Binary::Modulo if b == 0 => 0,
            Binary::Modulo => a.wrapping_rem(b),
            Binary::And => a & b,
            Binary::Or => a | b,
            Binary::Xor => a ^ b,
            Binary::Left => a.wrapping_shl(b as u32),
            Binary::Right => a.cast_unsigned().wrapping_shr(b as u32).cast_signed(),
        }
    }
}

/// How two numbers are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compare {
    Equal,
    Less,
    LessOrEqual,
}

/// True or false.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Truth {
    Const(bool),
    Compare(Compare, Box<Number>, Box<Number>),
    All(Vec<Truth>),
    Any(Vec<Truth>),
    Not(Box<Truth>),
    If(Box<Truth>, Box<Truth>, Box<Truth>),
    Let(u32, Box<Number>, Box<Truth>),
}

/// A verdict.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Outcome {
    /// Allowed if true, else denied.
    Test(Truth),
    /// This verdict with these fields written (offset, width, value) if the guard holds, else denied.
    Write {
        verdict: u8,
        guard: Truth,
        fields: Vec<(usize, u8, Number)>,
    },
    If(Truth, Box<Outcome>, Box<Outcome>),
    Let(u32, Number, Box<Outcome>),
}

pub(crate) fn constant(number: i64) -> Number {
    Number::Const(number)
}

pub(crate) fn binary(binary: Binary, a: Number, b: Number) -> Number {
    Number::Binary(binary, Box::new(a), Box::new(b))
}

pub(crate) fn compare(compare: Compare, a: Number, b: Number) -> Truth {
    Truth::Compare(compare, Box::new(a), Box::new(b))
}

/// `a <= b`
pub(crate) fn at_most(a: Number, b: Number) -> Truth {
    compare(Compare::LessOrEqual, a, b)
}

/// The smaller or larger of two locals.
pub(crate) fn pick(smaller: bool, a: Number, b: Number) -> Number {
    let (first, second) = if smaller { (&a, &b) } else { (&b, &a) };
    let test = at_most(first.clone(), second.clone());
    Number::If(Box::new(test), Box::new(a), Box::new(b))
}

/// Numbers in locals, so that each is computed once and before anything is written.
pub(crate) struct Bound {
    locals: Vec<(u32, Number)>,
    next: u32,
}

impl Bound {
    pub(crate) fn new(next: u32) -> Bound {
        Bound { locals: Vec::new(), next }
    }
    pub(crate) fn bind(&mut self, number: Number) -> Number {
        self.locals.push((self.next, number));
        self.next += 1;
        Number::Local(self.next - 1)
    }
    pub(crate) fn outcome(self, inner: Outcome) -> Outcome {
        let wrap = |inner, (local, number)| Outcome::Let(local, number, Box::new(inner));
        self.locals.into_iter().rev().fold(inner, wrap)
    }
    pub(crate) fn truth(self, inner: Truth) -> Truth {
        let wrap = |inner, (local, number)| Truth::Let(local, Box::new(number), Box::new(inner));
        self.locals.into_iter().rev().fold(inner, wrap)
    }
    pub(crate) fn number(self, inner: Number) -> Number {
        let wrap = |inner, (local, number)| Number::Let(local, Box::new(number), Box::new(inner));
        self.locals.into_iter().rev().fold(inner, wrap)
    }
    /// The next free local.
    pub(crate) fn next(&self) -> u32 {
        self.next
    }
}

/// A verdict that keeps a part of a rectangle: what it has in common with the one that the arguments give.
pub(crate) fn part(verdict: u8, arguments: [Number; 4], next: u32) -> (Outcome, u32) {
    let mut bound = Bound::new(next);
    let [x, y, w, h] = arguments.map(|argument| bound.bind(argument));
    // Arguments are at most 17 bits afterwards, so that no sum wraps.
    let mut clamp = |number: Number| {
        let low = bound.bind(pick(false, number, constant(0)));
        bound.bind(pick(true, low, constant(65_536)))
    };
    let [x, y, w, h] = [x, y, w, h].map(&mut clamp);
    let mut side = |at: Number, len: Number, own_at: usize, own_len: usize| {
        let own = bound.bind(Number::Field(own_at, 2));
        let own_len = bound.bind(Number::Field(own_len, 2));
        let from = bound.bind(pick(false, at.clone(), own.clone()));
        let end = bound.bind(binary(Binary::Add, at, len));
        let own_end = bound.bind(binary(Binary::Add, own, own_len.clone()));
        let end = bound.bind(pick(true, end, own_end));
        let left = bound.bind(binary(Binary::Subtract, end, from.clone()));
        (from, left, own_len)
    };
    let (x, w, own_w) = side(x, w, field::X, field::W);
    let (y, h, own_h) = side(y, h, field::Y, field::H);
    let some = Truth::All(vec![
        at_most(constant(1), w.clone()),
        at_most(constant(1), h.clone()),
        at_most(constant(1), own_w.clone()),
        at_most(constant(1), own_h.clone()),
    ]);
    let next = bound.next();
    let fields = vec![(field::X, 2, x), (field::Y, 2, y), (field::W, 2, w), (field::H, 2, h)];
    // Without pixels (a key), there is nothing to keep a part of.
    let empty = Truth::Not(Box::new(Truth::All(vec![
        at_most(constant(1), own_w),
        at_most(constant(1), own_h),
    ])));
    let write = Outcome::Write { verdict, guard: some, fields };
    let allow =
        Outcome::Write { verdict: number::ALLOW, guard: Truth::Const(true), fields: Vec::new() };
    (bound.outcome(Outcome::If(empty, Box::new(allow), Box::new(write))), next)
}

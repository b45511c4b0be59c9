//! Evaluates an expression on a descriptor and its data.

use super::core::{Compare, Number, Outcome, Truth};
use crate::abi::field;
use crate::request::{Descriptor, number};

/// What an evaluation sees.
pub(crate) struct Scope<'a> {
    pub(crate) descriptor: &'a mut Descriptor,
    /// As many bytes as the compiled form would get.
    pub(crate) data: &'a [u8],
    pub(crate) locals: Vec<i64>,
}

impl Scope<'_> {
    fn number(&mut self, tree: &Number) -> i64 {
        match tree {
            Number::Const(number) => *number,
            Number::Field(at, width) => {
                let bytes = self.descriptor[*at..*at + usize::from(*width)].iter().rev();
                bytes.fold(0, |sum, byte| sum << 8 | i64::from(*byte))
            }
            Number::Data(width, at) => {
                let at = self.number(at);
                let begin = usize::try_from(at).ok();
                let bytes = begin.and_then(|begin| {
                    self.data.get(begin..begin.checked_add(usize::from(*width))?)
                });
                bytes.unwrap_or(&[]).iter().fold(0, |sum, byte| sum << 8 | i64::from(*byte))
            }
            Number::Local(local) => self.locals[*local as usize],
            Number::Binary(binary, a, b) => {
                let a = self.number(a);
                binary.apply(a, self.number(b))
            }
            Number::If(test, a, b) => {
                if self.truth(test) {
                    self.number(a)
                } else {
                    self.number(b)
                }
            }
            Number::Let(local, value, inner) => {
                self.locals[*local as usize] = self.number(value);
                self.number(inner)
            }
        }
    }
    fn truth(&mut self, tree: &Truth) -> bool {
        match tree {
            Truth::Const(truth) => *truth,
            Truth::Compare(compare, a, b) => {
                let (a, b) = (self.number(a), self.number(b));
                match compare {
                    Compare::Equal => a == b,
                    Compare::Less => a < b,
                    Compare::LessOrEqual => a <= b,
                }
            }
            Truth::All(truths) => truths.iter().all(|truth| self.truth(truth)),
            Truth::Any(truths) => truths.iter().any(|truth| self.truth(truth)),
            Truth::Not(truth) => !self.truth(truth),
            Truth::If(test, a, b) => {
                if self.truth(test) {
                    self.truth(a)
                } else {
                    self.truth(b)
                }
            }
            Truth::Let(local, value, inner) => {
                self.locals[*local as usize] = self.number(value);
                self.truth(inner)
            }
        }
    }
    /// Writes the verdict into the descriptor.
    pub(crate) fn outcome(&mut self, tree: &Outcome) {
        match tree {
            Outcome::Test(truth) => {
                if self.truth(truth) {
                    self.descriptor[field::VERDICT] = number::ALLOW;
                } else {
                    self.deny();
                }
            }
            Outcome::Write { verdict, guard, fields } => {
                if !self.truth(guard) {
                    return self.deny();
                }
                for (at, width, value) in fields {
                    let (at, width) = (*at, usize::from(*width));
                    let value = self.number(value).to_le_bytes();
                    self.descriptor[at..at + width].copy_from_slice(&value[..width]);
                }
                self.descriptor[field::VERDICT] = *verdict;
            }
            Outcome::If(test, a, b) => {
                if self.truth(test) {
                    self.outcome(a);
                } else {
                    self.outcome(b);
                }
            }
            Outcome::Let(local, value, inner) => {
                self.locals[*local as usize] = self.number(value);
                self.outcome(inner);
            }
        }
    }
    fn deny(&mut self) {
        self.descriptor[field::CODE..field::CODE + 4].fill(0);
        self.descriptor[field::VERDICT] = number::DENY;
    }
}

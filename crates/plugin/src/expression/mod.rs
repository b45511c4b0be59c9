//! Policies of a few lines, in a small language in the manner of Scheme.
//!
//! ```text
//! (and (read-only) (within lba 0 4096))          a disk of 4096 blocks that cannot be written
//! (if (in source 10.0.0.0/8) (allow) (deny 3))   packets from one network only
//! (clip 100 100 640 480)                         a part of a display
//! ```
//!
//! An expression is one form. What is true allows, what is false denies; other verdicts stand for themselves. It is
//! interpreted, or compiled to a module as every plugin's; both decide the same. `docs/expressions.md` is the
//! reference.
//!
//! Rows: N-21, N-22.

mod check;
mod compile;
mod core;
mod interpret;
mod text;

use crate::abi::{DESCRIPTOR_LEN, field};
use crate::request::{Answer, Answers, Kind, Policy, Request, Verdict, u64_at};
use lastmeter_base::Time;

pub use text::{DEPTH_MAX, Form, Node, TEXT_LEN_MAX, Wrong, parse};

/// Bytes of data that an expression sees.
pub const WANTED: usize = 128;
/// Numbers that an expression may hold at once.
const LOCALS_MAX: u32 = 4096;

/// A checked expression.
#[derive(Clone, Debug)]
pub struct Expression {
    name: String,
    kind: Kind,
    form: Form,
    tree: core::Outcome,
    locals: Vec<i64>,
}

impl Expression {
    /// Reads and checks an expression about requests of this kind.
    ///
    /// ```
    /// use lastmeter_plugin::Kind;
    /// use lastmeter_plugin::expression::Expression;
    /// let text = "(and (read-only)\n  (within lbx 0 4096))";
    /// let wrong = Expression::new("policy", Kind::Block, text).unwrap_err();
    /// assert!(wrong.describe(text).starts_with("line 2, column 11: a block has no `lbx`"));
    /// ```
    pub fn new(name: &str, kind: Kind, text: &str) -> Result<Expression, Wrong> {
        let form = parse(text)?;
        let (tree, locals) = check::check(&form, kind)?;
        let locals = vec![0; locals as usize];
        Ok(Expression { name: name.to_owned(), kind, form, tree, locals })
    }
    /// Its parsed form, which prints as text that means the same.
    pub fn form(&self) -> &Form {
        &self.form
    }
    /// A plugin that decides as it does.
    pub fn compile(&self) -> Vec<u8> {
        compile::compile(self.kind, &self.tree, self.locals.len() as u32)
    }
}

impl Policy for Expression {
    fn name(&self) -> &str {
        &self.name
    }
    fn process(&mut self, _now: Time, requests: &[Request<'_>], answers: &mut Answers) {
        answers.clear();
        for request in requests {
            let data = &request.data[..request.data.len().min(WANTED)];
            let mut descriptor = [0; DESCRIPTOR_LEN];
            request.emit(&mut descriptor, 0, data.len() as u32, WANTED as u32);
            let locals = std::mem::take(&mut self.locals);
            let mut scope = interpret::Scope { descriptor: &mut descriptor, data, locals };
            // One about another kind has nothing to say about this request.
            if request.body.kind() == self.kind {
                scope.outcome(&self.tree);
            } else {
                scope.descriptor[field::VERDICT] = crate::request::number::DENY;
                scope.descriptor[field::CODE..field::CODE + 4].fill(0);
            }
            self.locals = scope.locals;
            let verdict = Verdict::read(&descriptor, &request.body);
            let verdict = verdict.expect("an expression's verdict fits the request");
            let mark = u64_at(&descriptor, field::MARK);
            answers.answers.push(Answer { verdict, mark, seen: data.len() as u32, data: (0, 0) });
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;

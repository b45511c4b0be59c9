//! Tasks: what helper processes do for other crates, in the namespaces of a [`Site`].
//!
//! ```text
//! program                                  helper, started by the same program
//! site.begin::<T>(host, &job)  --job-->    T::run(&job, parent)
//!                              <--ready--  parent.ready()
//! site.tell::<T>(host, &word)  --word-->   parent.hear(), or parent.speaks(within)
//! site.report::<T>(host)       <--report-- what `run` returns
//! ```
//!
//! A task is known to its helpers by the table that the program's `main` gives to
//! [`enter_if_asked`](crate::worker::enter_if_asked), and by its name; this crate knows none of them.

use crate::channel;
use crate::site::Site;
use crate::worker::{Reply, Request, reply};
use lastmeter_linux::{Doing, Error, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Something that helpers do for another crate.
pub trait Task {
    /// What it is to do, in a few words ("serve a channel"): its name, which no other task has.
    const NAME: &'static str;
    /// What a helper has to know.
    type Job: Serialize + DeserializeOwned;
    /// What it is told meanwhile.
    type Word: Serialize + DeserializeOwned;
    /// What came of it.
    type Report: Serialize + DeserializeOwned;

    /// Does it, in a helper: prepares, calls [`Parent::ready`], and returns at its end.
    ///
    /// # Errors
    /// The program gets them in place of the report.
    fn run(job: &Self::Job, parent: &mut Parent<'_>) -> Result<Self::Report>;
}

/// A task in the table of a program.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    name: &'static str,
    run: fn(Value, &mut Parent<'_>) -> Result<Value>,
}

impl Entry {
    /// That of a task.
    pub const fn of<T: Task>() -> Entry {
        Entry { name: T::NAME, run: from_job::<T> }
    }
}

fn from_job<T: Task>(job: Value, parent: &mut Parent<'_>) -> Result<Value> {
    let job = serde_json::from_value(job).doing("reading a job")?;
    let report = T::run(&job, parent)?;
    serde_json::to_value(report).doing("writing a report")
}

/// Does the task of this name, in a helper.
pub(crate) fn run(
    tasks: &[Entry],
    name: &str,
    job: Value,
    socket: &mut UnixStream,
) -> Result<Value> {
    let Some(task) = tasks.iter().find(|task| task.name == name) else {
        let found = "this program has no such task".to_owned();
        return Err(Error::Worker { doing: name.to_owned(), found });
    };
    (task.run)(job, &mut Parent(socket))
}

/// The program that a task is done for.
pub struct Parent<'a>(&'a mut UnixStream);

impl Parent<'_> {
    /// Tells it that everything is prepared.
    ///
    /// # Errors
    /// It has gone.
    pub fn ready(&mut self) -> Result<()> {
        channel::send(self.0, &Reply::Done).doing("talking to the program")
    }

    /// Waits for its next word.
    ///
    /// # Errors
    /// It has gone, or says something else.
    pub fn hear<T: Task>(&mut self) -> Result<T::Word> {
        let what = "listening to the program";
        match channel::receive(self.0).doing(what)? {
            Some(Request::Word(word)) => serde_json::from_value(word).doing(what),
            other => Err(channel::instead("hear a word", other)),
        }
    }

    /// Whether it says something, or goes, within this time.
    pub fn speaks(&self, within: Duration) -> bool {
        let tv_nsec = within.subsec_nanos().into();
        let timeout = Timespec { tv_sec: within.as_secs() as i64, tv_nsec };
        let mut polled = [PollFd::new(&*self.0, PollFlags::IN)];
        poll(&mut polled, Some(&timeout)).is_ok_and(|found| found > 0)
    }
}

impl Site {
    /// Has a host's helper begin a task, and waits until it is ready.
    ///
    /// # Errors
    /// The helper's own, or it has gone.
    pub fn begin<T: Task>(&mut self, host: usize, job: &T::Job) -> Result<()> {
        let job = serde_json::to_value(job).doing("writing a job")?;
        self.helper(host).done(&Request::Task { name: T::NAME.to_owned(), job })
    }

    /// Tells a host's helper something while it does a task.
    ///
    /// # Errors
    /// It has gone.
    pub fn tell<T: Task>(&mut self, host: usize, word: &T::Word) -> Result<()> {
        let word = serde_json::to_value(word).doing("writing a word")?;
        self.helper(host).ask(&Request::Word(word))
    }

    /// Waits for the report of a host's helper.
    ///
    /// # Errors
    /// The helper's own, or it has gone.
    pub fn report<T: Task>(&mut self, host: usize) -> Result<T::Report> {
        let report = reply!(self.helper(host), T::NAME, Reply::Report(report) => report);
        serde_json::from_value(report).doing("reading a report")
    }
}
